#pragma once

#include <torch/nn/module.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"

namespace rondo {

// All models here are classifiers: forward maps a batch's input to logits whose last dimension is the class
// (or the vocabulary), and cross_entropy compares them with the batch's target. Inputs and outputs: int64
// tokens [samples, length] -> [samples, length, vocabulary], float32 [samples, ...] -> [samples, classes], or
// for bert int64 [samples, 3, length] -> either.
//
// Builds a model. Weights are drawn from libtorch's default generator, so torch::manual_seed makes them
// reproducible. `config` overrides entries of model_config(name). Throws UsageError for an unknown name, key
// or value, naming the valid ones.
Model make_model(const std::string& name, const nlohmann::json& config = nlohmann::json::object());

// Returns the complete default configuration of `name`. Entries that depend on the data (input_shape and
// classes, or context and vocabulary) come from DatasetInfo::model_config. Throws UsageError for an unknown
// name.
nlohmann::json model_config(const std::string& name);

// Returns the names, sorted: bert, bert-tiny, convnet, gpt, gpt-25m, gpt-tiny, mlp.
std::vector<std::string> model_names();

// Returns the number of trainable values; a parameter shared by two modules counts once.
std::int64_t count_parameters(const torch::nn::Module& module);

// Freezes the parameters below the named parts of `model`: they get no gradient, and strategies and
// optimizers skip them. A part is one or more consecutive names of a path: "embeddings" and "bert.embeddings"
// both match "bert.embeddings.LayerNorm.weight", "layer.0" the first layer. Returns the number of frozen
// parameters. Call it before a strategy is given the model. Throws UsageError for a part that does not exist,
// listing the parts, and if no trainable parameter remains.
int freeze(torch::nn::Module& model, const std::vector<std::string>& parts);

}  // namespace rondo
