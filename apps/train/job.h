#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/train/flags.h"
#include "rondo/data/open.h"
#include "rondo/models/model.h"
#include "rondo/precision/options.h"
#include "rondo/train/metric.h"

// From flags to the model, its data, loss and metrics, for all programs with such flags.
namespace rondo {

// Replaces a --model auto by the built-in model for data of the kind of --data, also in
// `flags.configuration`; with `say` it prints the choice to standard error. Throws UsageError for data that
// has none, and for options of other models; DataError as open_data().
void choose_model(TrainFlags& flags, bool say);

// Returns the user's part of the model's configuration: --model-config and the model's own flags.
nlohmann::json model_overrides(const TrainFlags& flags);

// Opens the data of --data. Throws UsageError for data that does not suit the model, and for options of
// another kind.
OpenedData open_training_data(const TrainFlags& flags, const nlohmann::json& overrides,
                              const KnownData& known = {});

// Returns the model with its initial weights, frozen parts and units. Rank 0 reports differences from
// pretrained weights.
Model make_training_model(const TrainFlags& flags, const DatasetInfo& info, const nlohmann::json& overrides,
                          int rank);

// Returns the name for make_loss(): --loss; for auto cross_entropy for classes, mse for numbers.
std::string loss_name(const TrainFlags& flags, const DatasetInfo& info);
std::vector<Metric> metrics_for(const TrainFlags& flags, const DatasetInfo& info);

PrecisionOptions precision_options(const TrainFlags& flags);

}  // namespace rondo
