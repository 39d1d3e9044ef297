#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/train/flags.h"
#include "apps/train/run_directory.h"
#include "rondo/data/dataset.h"
#include "rondo/format/metrics.h"
#include "rondo/train/trainer.h"

namespace rondo {

// Makes of TrainerFlags what a Trainer takes.

// `usual` without --metrics, otherwise the loss and those. Throws UsageError for a name that is none.
std::vector<Metric> chosen_metrics(const TrainFlags& flags, const DatasetInfo& info,
                                   std::vector<Metric> usual);
// Throws UsageError for class weights that are no numbers, or not as many as there are classes.
LossFunction chosen_loss(const TrainFlags& flags, const DatasetInfo& info);
// Throws UsageError for flags that do not fit each other or the data.
void check_trainer_flags(const TrainFlags& flags, bool has_validation);
// The number of peak-flops; empty without one, or where it is to be measured. Throws UsageError for another
// text.
std::optional<double> peak_flops_of(const TrainFlags& flags);
// Adds callbacks, and what else fit is to be told.
void add_trainer_callbacks(const TrainFlags& flags, const RunDirectory& run, FitOptions& fit);

// Starts what `--prometheus [HOST:]PORT` asks for, 127.0.0.1 without a host, and says where it is; returns
// the function that tells it of new rows. It serves as long as that function or a copy of it lives. Throws
// UsageError for an address that cannot be, CommunicationError for one that is taken.
std::function<void(std::span<const MetricsRow>)> start_metrics_page(const std::string& address);

}  // namespace rondo
