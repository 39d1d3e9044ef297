#pragma once

#include <torch/nn/module.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"

namespace rondo {

// All models here predict classes: forward maps a batch's input to logits whose last dimension is the class
// (or the vocabulary), and cross_entropy compares them with the batch's target. Inputs and outputs: int64
// tokens [samples, length] -> [samples, length, vocabulary], float32 [samples, ...] -> [samples, classes], or
// for bert int64 [samples, 3, length] -> either.
//
// Builds a model; weights come from libtorch's default generator, so torch::manual_seed before it fixes them.
// `config` overrides entries of model_config(name). Throws UsageError for an unknown name, key or value,
// naming what is allowed.
Model make_model(const std::string& name, const nlohmann::json& config = nlohmann::json::object());

// The complete configuration of `name` with its default values. What depends on the data (input_shape and
// classes, or context and vocabulary) comes from DatasetInfo::model_config. Throws UsageError for an unknown
// name.
nlohmann::json model_config(const std::string& name);

// Sorted: bert, bert-tiny, convnet, gpt, gpt-25m, gpt-tiny, mlp.
std::vector<std::string> model_names();

// Number of trainable values; a parameter shared by two modules counts once.
std::int64_t count_parameters(const torch::nn::Module& module);

// Takes the parameters below the named parts of `model` out of training: they get no gradient, and no
// strategy or optimizer touches them. A part is one or more names of a path as they stand in it: "embeddings"
// and "bert.embeddings" are all of "bert.embeddings.LayerNorm.weight" and its neighbours, "layer.0" the first
// layer. Returns how many parameters that is. Call it before a strategy sees the model. Throws UsageError for
// a part that is not in the model, listing what is, and when nothing would be left to train.
int freeze(torch::nn::Module& model, const std::vector<std::string>& parts);

}  // namespace rondo
