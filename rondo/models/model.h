#pragma once

#include <torch/nn/module.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/models/bert_config.h"
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

// `config` as make_model("bert", ...) takes it.
nlohmann::json bert_model_config(const BertConfig& config);

// Sorted: bert, bert-tiny, convnet, gpt, gpt-25m, gpt-tiny, mlp.
std::vector<std::string> model_names();

// Number of trainable values; a parameter shared by two modules counts once.
std::int64_t count_parameters(const torch::nn::Module& module);

}  // namespace rondo
