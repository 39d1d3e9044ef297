// `rondo train` with a strategy that rondo does not have: what a program of one's own adds, and nothing else.
#include <cstdio>

#include "apps/train/rank.h"
#include "rondo/backend/context.h"
#include "rondo/parallel/ddp/ddp_strategy_options.h"
#include "rondo/parallel/registry.h"

namespace {

struct CheckedOptions : rondo::CommunicationOptions {
  int check_share = 50;
};

rondo::Declaration checked_declaration() {
  rondo::OptionsOf<CheckedOptions> table;
  table.add("check-share", &CheckedOptions::check_share, "Percent of steps whose end compares parameters",
            rondo::within(1, 100));
  table.include(rondo::communication_options());  // declared once for all that take them
  return {.name = "checked", .summary = "ddp that compares parameters often", .options = table};
}

std::unique_ptr<rondo::Strategy> make_checked(const rondo::Context& context, const CheckedOptions& options) {
  rondo::DdpStrategyOptions ddp;
  ddp.check_parameters_every = 100 / options.check_share;
  if (context.rank() == 0) std::fprintf(stderr, "checked every %d steps\n", ddp.check_parameters_every);
  return rondo::all_strategies().make("ddp", context, ddp);
}

}  // namespace

int main(int argc, char** argv) {
  rondo::StrategyRegistry strategies = rondo::all_strategies();
  strategies.add<CheckedOptions>(checked_declaration(), make_checked);
  return rondo::run_rank(argc, argv, strategies);
}
