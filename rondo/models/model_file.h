#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rondo/models/model.h"
#include "rondo/models/model_options.h"

namespace rondo {

// Opens a built-in model by name (make_model()), or the model of a file: "PATH.so:FACTORY" (model_module.h)
// or TorchScript in "PATH.pt". Code in these files RUNS with the rights of the process. `config` is the
// request to the factory; TorchScript ignores it. A shared module stays loaded. Throws UsageError naming the
// file, the fault and the expectation: no such file, a module without the factory, one built with another
// libtorch or rondo, a TorchScript file whose forward does not map one tensor to tensors.
Model open_model(const std::string& name, const nlohmann::json& config);

// Returns the settings of a model that do not depend on the data: model_config() of a built-in model, none
// for a file.
nlohmann::json default_model_config(const std::string& name);

}  // namespace rondo
