#include "apps/train/evaluator.h"

#include <cstdio>
#include <optional>

#include "apps/train/job.h"
#include "apps/train/stop_signals.h"
#include "apps/train/trainer_setup.h"
#include "rondo/backend/context.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/models/model.h"
#include "rondo/observe/progress.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/evaluate_checkpoints.h"
#include "rondo/train/trainer.h"

namespace rondo {

ExitCode run_evaluator(const TrainFlags& given) {
  log::set_prefix("evaluator");
  TrainFlags flags = given;
  if (flags.run_dir.empty())
    throw UsageError("an evaluator must be told which training it evaluates: --run-dir");
  choose_model(flags, /*say=*/false);
  const nlohmann::json overrides = model_overrides(flags);
  const OpenedData data = open_training_data(flags, overrides);
  if (data.validation == nullptr) {
    throw UsageError(
        "an evaluator needs validation data: --validation-fraction is 0 and the data has no test part");
  }
  const Context context = init({.device = flags.device, .init_method = "alone"});
  const auto strategy = all_strategies().make(strategy_of_auto(/*several_processes=*/false), context);
  Trainer trainer(*strategy, make_training_model(flags, data.train->info(), overrides, /*rank=*/0),
                  context.device(), precision_options(flags));
  const DatasetInfo& info = data.train->info();
  trainer.compile(OptimizerOptions{.name = "sgd"}, chosen_loss(flags, info),
                  chosen_metrics(flags, info, metrics_for(flags, info)));
  request_stop_on_signals();

  ProgressOptions shown;
  shown.style = parse_progress_style(flags.progress);
  std::optional<Progress> progress(std::in_place, stderr, shown);
  evaluate_checkpoints(trainer, *data.validation,
                       {.run = flags.run_dir,
                        .evaluate = {.batch_size = flags.eval_batch_size,
                                     .batches = flags.eval_batches,
                                     .progress =
                                         [&](std::int64_t batches, std::int64_t of) {
                                           progress->activity("validation", batches, of, "batches");
                                         }},
                        .patience = parse_duration(flags.timeout, "--timeout"),
                        .stop_requested = stop_requested,
                        .told = [&](std::int64_t step, const std::map<std::string, double>& figures) {
                          progress.emplace(stderr, shown);  // ends the line of this evaluation
                          std::string text;
                          for (const auto& [metric, value] : figures) text += str(", ", metric, " ", value);
                          std::printf("evaluated step %lld%s\n", static_cast<long long>(step), text.c_str());
                          std::fflush(stdout);
                        }});
  return ExitCode::ok;
}

}  // namespace rondo
