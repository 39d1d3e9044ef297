#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <string>

#include "rondo/models/gpt.h"

// A GPT in Hugging Face's folders of GPT-2: config.json and the names of model.safetensors.
namespace rondo {

// The architecture that a config.json describes. Throws DataError naming the entry that is missing or that
// this GPT cannot do (another model type or activation, cross attention); `source` names the file in it.
GptConfig gpt_config_from(const nlohmann::json& config, const std::string& source);

// The config.json with which Hugging Face's transformers open the model.
nlohmann::ordered_json hugging_face_config(const GptConfig& config);

// The name in this model of a tensor in a file: files of the bare transformer leave out "transformer.".
std::string gpt_tensor_name(const std::string& name_in_file);

// Whether GPT-2's files hold the weight of this name as [in, out], where an nn::Linear has [out, in].
bool is_transposed_in_gpt2(const std::string& name);

// Whether a tensor of a file is no weight: the causal masks of old files.
bool is_mask_in_gpt2(const std::string& name_in_file);

// `config` as make_model("gpt", ...) takes it.
nlohmann::json gpt_model_config(const GptConfig& config);

}  // namespace rondo
