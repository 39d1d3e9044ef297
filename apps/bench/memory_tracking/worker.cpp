#include "apps/bench/memory_tracking/worker.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "rondo/backend/context.h"
#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/time.h"
#include "rondo/data/dataset.h"
#include "rondo/models/model.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/trainer.h"

namespace rondo::bench {
namespace {

// Random tokens, as many as nobody trains on in a benchmark.
class Tokens final : public Dataset {
 public:
  Tokens(std::int64_t context, std::int64_t vocabulary)
      : tokens_(torch::randint(vocabulary, {4096, context + 1}, at::kLong)) {
    info_.kind = "tokens";
    info_.source = "memory";
    info_.input_shape = {context};
    info_.classes = vocabulary;
    info_.targets_per_sample = context;
  }
  std::int64_t size() const override { return tokens_.size(0); }
  Batch get(std::span<const std::int64_t> indices) const override {
    check_indices(indices, size());
    const at::Tensor rows = tokens_.index_select(
        0, torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), at::kLong));
    const std::int64_t context = rows.size(1) - 1;
    return {
        {rows.narrow(1, 0, context).contiguous()}, {rows.narrow(1, 1, context).contiguous()}, rows.size(0)};
  }
  const DatasetInfo& info() const override { return info_; }

 private:
  at::Tensor tokens_;
  DatasetInfo info_;
};

// Waits for the next turn when one is over.
class Turns final : public Callback {
 public:
  std::string name() const override { return "turns"; }
  void on_train_begin(Trainer&, const FitOutline&) override {
    std::cout << nlohmann::json{{"ready", true}}.dump() << std::endl;
    next_turn();
  }
  void on_step_end(Trainer&, const StepRecord&) override {
    const TimePoint now = Clock::now();
    step_ms_.push_back(milliseconds(now - mark_));
    mark_ = now;
    if (static_cast<int>(step_ms_.size()) < steps_) return;
    std::cout << nlohmann::json{{"step_ms", std::exchange(step_ms_, {})}}.dump() << std::endl;
    next_turn();
  }
  bool wants_to_stop() const override { return steps_ == 0; }

 private:
  void next_turn() {
    if (!(std::cin >> steps_)) steps_ = 0;
    mark_ = Clock::now();
  }

  int steps_ = 0;
  TimePoint mark_;
  std::vector<double> step_ms_;
};

}  // namespace

void train_for_memory_tracking(const MemoryTrackingWorker& options) {
  if (options.tracked) track_cpu_allocations();
  at::set_num_threads(1);
  at::Context::setFlushDenormal(true);
  InitOptions init_options;
  init_options.rank = 0;
  init_options.world_size = 1;
  init_options.store = c10::make_intrusive<c10d::HashStore>();
  const Context context = init(init_options);
  torch::manual_seed(1);
  const nlohmann::json config = model_config(options.model);
  const auto data = std::make_shared<Tokens>(config.at("context"), config.at("vocabulary"));
  const auto strategy = all_strategies().make("one_device", context);
  Trainer trainer(*strategy, make_model(options.model, config));
  trainer.compile([](torch::nn::Module& module) {
    return make_optimizer({.name = "adamw", .learning_rate = 1e-4}, module);
  });
  trainer.fit(data, {.steps = std::numeric_limits<std::int32_t>::max(),
                     .batch_size = options.batch_size,
                     .callbacks = {std::make_shared<Turns>()}});
}

}  // namespace rondo::bench
