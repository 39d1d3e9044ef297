#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/train/flags.h"
#include "apps/train/run_directory.h"
#include "rondo/data/dataset.h"
#include "rondo/train/log_target.h"
#include "rondo/train/trainer.h"

namespace rondo {

// From TrainerFlags to a Trainer.

// Returns `usual` without --metrics, otherwise the loss and the named metrics. Throws UsageError for an
// unknown name.
std::vector<Metric> chosen_metrics(const TrainFlags& flags, const DatasetInfo& info,
                                   std::vector<Metric> usual);
// Throws UsageError if class weights are not numbers, or if their number differs from the number of classes.
LossFunction chosen_loss(const TrainFlags& flags, const DatasetInfo& info);
// Throws UsageError for flags that do not fit each other or the data.
void check_trainer_flags(const TrainFlags& flags, bool has_validation);
// Returns the value of peak-flops; empty if it is not set or is to be measured. Throws UsageError for invalid
// text.
std::optional<double> peak_flops_of(const TrainFlags& flags);
// Adds callbacks and the other options of fit. `log_targets`: those of --log-to.
void add_trainer_callbacks(const TrainFlags& flags, const RunDirectory& run,
                           const std::vector<LogTarget>& log_targets, FitOptions& fit);
// Returns the run as log targets see it; `writes`: this process is the one that writes for it.
LoggedRun logged_run(const TrainFlags& flags, const RunDirectory& run, bool writes);

}  // namespace rondo
