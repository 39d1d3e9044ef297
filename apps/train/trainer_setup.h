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

// From TrainerFlags to a Trainer.

// Returns `usual` without --metrics, otherwise the loss and the named metrics. Throws UsageError for an
// unknown name.
std::vector<Metric> chosen_metrics(const TrainFlags& flags, const DatasetInfo& info,
                                   std::vector<Metric> usual);
// Throws UsageError for class weights that are no numbers, or not as many as there are classes.
LossFunction chosen_loss(const TrainFlags& flags, const DatasetInfo& info);
// Throws UsageError for flags that do not fit each other or the data.
void check_trainer_flags(const TrainFlags& flags, bool has_validation);
// Returns the number of peak-flops; empty without one, or if it is to be measured. Throws UsageError for
// invalid text.
std::optional<double> peak_flops_of(const TrainFlags& flags);
// Adds callbacks and the other options of fit.
void add_trainer_callbacks(const TrainFlags& flags, const RunDirectory& run, FitOptions& fit);

// Starts the server of `--prometheus [HOST:]PORT`, by default on 127.0.0.1, and prints its address. Returns
// the function that passes new rows to it; the server runs as long as that function or a copy of it lives.
// Throws UsageError for an invalid address, CommunicationError for one in use.
std::function<void(std::span<const MetricsRow>)> start_metrics_page(const std::string& address);

}  // namespace rondo
