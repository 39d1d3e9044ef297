#pragma once

#include <nlohmann/json.hpp>

#include "apps/train/flags.h"
#include "rondo/data/open.h"
#include "rondo/models/model.h"

namespace rondo {

bool is_gpt(const std::string& model);

// What a gpt's data needs: its context (--context, else the model's default, at most the positions of
// --init's model), and the tokenizer of --init's folder where that model reads more than bytes. Throws
// UsageError.
DataOptions gpt_data_options(const TrainFlags& flags, DataOptions options);

// The model's configuration: that of --init's config.json (GPT-2's) where one is given, in which the data's
// context is a part of the model's, and the user's overrides. Throws UsageError for a model that has another
// vocabulary than the data.
nlohmann::json gpt_training_config(const TrainFlags& flags, const DatasetInfo& info,
                                   const nlohmann::json& overrides);

// Weights from --init's model.safetensors; says on rank 0 what was left unused.
void load_gpt_weights(const TrainFlags& flags, const Model& model, bool say);

}  // namespace rondo
