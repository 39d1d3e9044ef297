#include "apps/train/rank.h"

#include <cstdlib>

#include "apps/train/evaluator.h"
#include "apps/train/rank_failure.h"
#include "apps/train/sample.h"
#include "apps/train/simulated_device.h"
#include "apps/train/stop_signals.h"
#include "apps/train/train_command_line.h"
#include "apps/train/training_run.h"
#include "rondo/backend/registry.h"
#include "rondo/env/cluster.h"
#include "rondo/kernels/matmul_choice.h"

namespace rondo {
namespace {

int train_or_sample(const TrainFlags& flags, const StrategyRegistry& strategies) {
  if (flags.sample) {
    print_sample(flags);
    return 0;
  }
  const bool evaluates = env::is_evaluator(env::process_environment());
  return static_cast<int>(evaluates ? run_evaluator(flags) : run_training(flags, strategies));
}

}  // namespace

int run_rank(int argc, const char* const* argv, const StrategyRegistry& strategies) {
  end_on_stop_signals();
  TrainChoices choices = built_in_choices();
  choices.strategies = strategies.declarations();
  choices.engines = backend_declarations();
  return TrainCommandLine(std::move(choices)).run(argc, argv, [&](const TrainFlags& flags) {
    // A rank that another launcher started is told by nobody else.
    set_matmul(flags.matmul);
    return record_failures([&] {
      load_simulated_device(flags.device);
      return train_or_sample(flags, strategies);
    });
  });
}

}  // namespace rondo
