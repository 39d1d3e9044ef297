#include "apps/train/rank.h"

#include <cstdio>

#include "apps/train/evaluator.h"
#include "apps/train/sample.h"
#include "apps/train/stop_signals.h"
#include "apps/train/train_command_line.h"
#include "apps/train/training_run.h"
#include "rondo/backend/registry.h"
#include "rondo/env/cluster.h"
#include "rondo/launch/error_file.h"
#include "rondo/train/agreement.h"

namespace rondo {
namespace {

int train_or_sample(const TrainFlags& flags, const StrategyRegistry& strategies) {
  try {
    if (flags.sample) {
      print_sample(flags);
      return 0;
    }
    const bool evaluates = env::is_evaluator(env::process_environment());
    return static_cast<int>(evaluates ? run_evaluator(flags) : run_training(flags, strategies));
  } catch (const AgreedError& error) {
    let_error_end_process();
    if (error.mine_to_report()) {
      launch::record_failure(error.what());
      std::fprintf(stderr, "rondo train: %s\n", error.what());
    }
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    let_error_end_process();
    launch::record_failure(error);
    throw;  // reported by the command line
  }
}

}  // namespace

int run_rank(int argc, const char* const* argv, const StrategyRegistry& strategies) {
  end_on_stop_signals();
  TrainChoices choices = built_in_choices();
  choices.strategies = strategies.declarations();
  choices.engines = backend_declarations();
  return TrainCommandLine(std::move(choices)).run(argc, argv, [&](const TrainFlags& flags) {
    return train_or_sample(flags, strategies);
  });
}

}  // namespace rondo
