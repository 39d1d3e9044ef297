#pragma once

#include <nlohmann/json.hpp>

#include "apps/train/flags.h"
#include "rondo/data/open.h"
#include "rondo/models/model.h"

namespace rondo {

bool is_bert(const std::string& model);

// What a BERT's data needs besides what all data needs: kind, vocabulary, tokens a sample. Throws UsageError,
// or DataError for a bad folder of --init.
DataOptions bert_data_options(const TrainFlags& flags, DataOptions options);
std::string bert_data_kind(const TrainFlags& flags);

// The model's configuration: that of --init's config.json or the named size, what the data decides, and the
// user's overrides.
nlohmann::json bert_training_config(const TrainFlags& flags, const DatasetInfo& info,
                                    const nlohmann::json& overrides);

// Weights from --init's model.safetensors; says on rank 0 what is new and what was left unused.
void load_bert_weights(const TrainFlags& flags, const Model& model, bool say);

}  // namespace rondo
