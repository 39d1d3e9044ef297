#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rondo/models/model.h"
#include "rondo/models/model_options.h"

namespace rondo {

// make_model() of a built-in model's name, or the model of a file: "PATH.so:FACTORY" (model_module.h) or
// TorchScript in "PATH.pt", whose CODE RUNS with the rights of the process. `config` is what the factory is
// asked for; TorchScript has none. A shared module stays loaded. Throws UsageError naming the file, what is
// wrong and what is allowed: no such file, a module without the factory, one built with another libtorch or
// rondo, a TorchScript file whose forward does not map one tensor to tensors.
Model open_model(const std::string& name, const nlohmann::json& config);

// The settings of a model that the data does not decide: model_config() of a built-in one, none of a file.
nlohmann::json default_model_config(const std::string& name);

}  // namespace rondo
