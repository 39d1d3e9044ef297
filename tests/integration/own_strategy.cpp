// `rondo train` with strategies and an engine that rondo does not have, added by a program.
#include <chrono>
#include <cstdio>
#include <thread>

#include "apps/train/rank.h"
#include "rondo/backend/context.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/parallel/ddp/ddp_strategy_options.h"
#include "rondo/parallel/registry.h"
#include "rondo/strategy/training.h"

namespace {

struct CheckedOptions : rondo::CommunicationOptions {
  int check_share = 50;
};

rondo::Declaration checked_declaration() {
  rondo::OptionsOf<CheckedOptions> table;
  table.add("check-share", &CheckedOptions::check_share, "Percent of steps whose end compares parameters",
            rondo::within(1, 100));
  table.include(rondo::communication_options());  // declared once for all strategies that have them
  return {.name = "checked", .summary = "ddp that compares parameters often", .options = table};
}

std::unique_ptr<rondo::Strategy> make_checked(const rondo::Context& context, const CheckedOptions& options) {
  rondo::DdpStrategyOptions ddp;
  ddp.check_parameters_every = 100 / options.check_share;
  if (context.rank() == 0) std::fprintf(stderr, "checked every %d steps\n", ddp.check_parameters_every);
  return rondo::all_strategies().make("ddp", context, ddp);
}

// A slow variant of ddp: rank 0 finally reports that rank 1 has rejected it.
class SlowToGo final : public rondo::Strategy {
 public:
  explicit SlowToGo(const rondo::Context& context)
      : Strategy("slow_to_go", context), ddp_(rondo::all_strategies().make("ddp", context)) {}
  SlowToGo(const SlowToGo&) = delete;
  SlowToGo& operator=(const SlowToGo&) = delete;
  ~SlowToGo() override { std::this_thread::sleep_for(std::chrono::seconds(2)); }

  rondo::ReplicaPlacement placement() const override { return ddp_->placement(); }
  using rondo::Strategy::prepare;
  std::unique_ptr<rondo::Training> prepare(const rondo::Recipe& recipe) override {
    return ddp_->prepare(recipe);
  }
  using rondo::Strategy::run;
  rondo::ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override {
    return ddp_->run(step);
  }

 private:
  std::unique_ptr<rondo::Strategy> ddp_;
};

std::unique_ptr<rondo::Strategy> make_slow_to_go(const rondo::Context& context, const CheckedOptions&) {
  if (context.rank() == 1) throw rondo::UsageError("slow_to_go is not for rank 1");
  return std::make_unique<SlowToGo>(context);
}

struct LoudOptions {
  int loudness = 3;
};

rondo::Declaration loud_declaration() {
  rondo::OptionsOf<LoudOptions> table;
  table.add("loudness", &LoudOptions::loudness, "How loudly communicators are announced",
            rondo::within(1, 9));
  return {.name = "loud", .summary = "native that announces its communicators", .options = table};
}

c10::intrusive_ptr<c10d::Backend> make_loud(const rondo::BackendRequest& request,
                                            const LoudOptions& options) {
  if (request.rank == 0)
    std::fprintf(stderr, "%s, loudness %d\n", request.group_name.c_str(), options.loudness);
  return request.make("native", request).backend;
}

}  // namespace

int main(int argc, char** argv) {
  rondo::StrategyRegistry strategies = rondo::all_strategies();
  strategies.add<CheckedOptions>(checked_declaration(), make_checked);
  strategies.add<CheckedOptions>({.name = "slow_to_go",
                                  .summary = "one that goes slowly",
                                  .options = rondo::OptionsOf<CheckedOptions>()},
                                 make_slow_to_go);
  rondo::register_backend<LoudOptions>(loud_declaration(), make_loud);
  return rondo::run_rank(argc, argv, strategies);
}
