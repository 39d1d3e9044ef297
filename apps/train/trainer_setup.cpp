#include "apps/train/trainer_setup.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "apps/train/flags.h"
#include "apps/train/job.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/models/model_options.h"
#include "rondo/nn/loss.h"
#include "rondo/train/callbacks/early_stopping.h"
#include "rondo/train/callbacks/gradient_norm.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/callbacks/preemption.h"
#include "rondo/train/callbacks/reduce_on_plateau.h"
#include "rondo/train/callbacks/terminate_on_nan.h"
#include "rondo/train/callbacks/weight_average.h"
#include "rondo/train/metrics/metrics.h"

namespace rondo {
std::vector<Metric> chosen_metrics(const TrainFlags& flags, const DatasetInfo& info,
                                   std::vector<Metric> usual) {
  if (flags.metrics.empty()) return usual;
  std::vector<Metric> metrics{loss_metric()};
  for (const std::string& name : flags.metrics) {
    if (name == "loss") continue;
    metrics.push_back(use_flag("--metrics", join(flags.metrics, ","), [&] {
      return make_metric(name, {.classes = std::max<std::int64_t>(2, info.classes)});
    }));
  }
  return metrics;
}

LossFunction chosen_loss(const TrainFlags& flags, const DatasetInfo& info) {
  const std::string loss = loss_name(flags, info);
  if (loss == "nll" && !model_file(flags.model)) {
    throw UsageError(str("--loss nll needs log-probabilities, but --model ", flags.model,
                         " returns logits: use cross_entropy"));
  }
  if (flags.class_weights.empty()) return make_loss(loss);
  if (loss != "cross_entropy")
    throw UsageError(str("class-weights need loss cross_entropy, but the loss is ", loss));
  LossWeights weights;
  for (const std::string& weight : flags.class_weights)
    weights.classes.push_back(parse_number(weight, "class-weights"));
  if (static_cast<std::int64_t>(weights.classes.size()) != info.classes) {
    throw UsageError(str("class-weights has ", weights.classes.size(), " numbers, the data has ",
                         info.classes, " classes"));
  }
  return weighted_loss("cross_entropy", weights);
}

void check_trainer_flags(const TrainFlags& flags, bool has_validation) {
  const auto validated = [&](const char* flag, bool given) {
    if (given && !has_validation)
      throw UsageError(
          str(flag, " needs validations, but there is no validation data: give --validation-fraction"));
  };
  validated("--keep-best", !flags.best_of.empty());
  validated("--early-stopping-patience", flags.early_stopping > 0);
  validated("lr-plateau-patience", flags.reduce_on_plateau > 0);
  if (flags.checkpoint_incremental && (flags.checkpoint_in_parts || flags.checkpoint_in_background))
    throw UsageError(
        "checkpoint-incremental cannot be combined with --checkpoint-sharded or --checkpoint-async: leave "
        "one of them out");
  if (!flags.best_of.empty())
    use_flag("--keep-best", flags.best_of, [&] { return larger_is_better(flags.best_of); });
  peak_flops_of(flags);
  if (flags.restore_best && flags.early_stopping == 0)
    throw UsageError(
        "restore-best has no effect without --early-stopping-patience: leave it out, or add that flag");
}

std::optional<double> peak_flops_of(const TrainFlags& flags) {
  if (flags.peak_flops.empty() || flags.peak_flops == "measured") return std::nullopt;
  const double peak = parse_number(flags.peak_flops, "peak-flops");
  if (!(peak > 0)) throw UsageError(str("peak-flops ", flags.peak_flops, ": expected a number above 0"));
  return peak;
}

LoggedRun logged_run(const TrainFlags& flags, const RunDirectory& run, bool writes) {
  const std::string name = flags.labels.name.value_or("");
  LoggedRun logged{.directory = run.path,
                   .name = name.empty() ? run.path.filename().string() : name,
                   .every_steps = flags.log_every,
                   .writes = writes};
  for (const auto& [name, value] : flags.configuration.items())
    logged.parameters[name] = value.is_string() ? value.get<std::string>() : value.dump();
  return logged;
}

void add_trainer_callbacks(const TrainFlags& flags, const RunDirectory& run,
                           const std::vector<LogTarget>& log_targets, FitOptions& fit) {
  fit.steps_per_epoch = flags.steps_per_epoch;
  fit.traced_after = flags.trace_after;
  auto& callbacks = fit.callbacks;
  for (const LogTarget& target : log_targets) {
    if (target.callback) callbacks.push_back(target.callback);
  }
  if (flags.average_weights > 0) {
    WeightAverage::Options average{
        .decay = flags.average_weights, .directory = run.path / "average", .keep = flags.keep};
    if (run.resume_from) average.resumed_directory = parent_of_checkpoint(*run.resume_from) / "../average";
    callbacks.push_back(std::make_shared<WeightAverage>(std::move(average)));
  }
  if (flags.early_stopping > 0) {
    callbacks.push_back(std::make_shared<EarlyStopping>(
        EarlyStopping::Options{.patience = flags.early_stopping, .restore_best = flags.restore_best}));
  }
  if (flags.reduce_on_plateau > 0) {
    callbacks.push_back(std::make_shared<ReduceOnPlateau>(
        ReduceOnPlateau::Options{.patience = static_cast<int>(flags.reduce_on_plateau)}));
  }
  if (flags.terminate_on_nan) callbacks.push_back(std::make_shared<TerminateOnNan>());
  if (flags.gradient_norm_every > 0) {
    callbacks.push_back(
        std::make_shared<GradientNorm>(GradientNorm::Options{.every_steps = flags.gradient_norm_every}));
  }
  if (!flags.preemption_file.empty()) {
    callbacks.push_back(std::make_shared<Preemption>(
        Preemption::Options{.signals = {}, .notice_file = flags.preemption_file}));
  }
  if (!flags.best_of.empty()) {
    callbacks.push_back(std::make_shared<ModelCheckpoint>(
        ModelCheckpoint::Options{.directory = run.path / "best",
                                 .keep = flags.keep,
                                 .best_of = flags.best_of,
                                 .larger_is_better = larger_is_better(flags.best_of)}));
  }
}

}  // namespace rondo
