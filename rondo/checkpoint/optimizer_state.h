#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "rondo/checkpoint/named_tensors.h"

namespace torch::optim {
class Optimizer;
}

namespace rondo {

// What an optimizer remembers, by parameter NAME: a model whose parameters are made in another order, or an
// optimizer with other groups of the same parameters in memory, is noticed instead of silently mixed up.
struct OptimizerSnapshot {
  nlohmann::json description;  // type, options and parameter names of each group, counters of each parameter
  NamedTensors tensors;        // "NAME/PARAMETER/exp_avg"; the optimizer's own tensors
};

// `name` prefixes the tensors. `model` gives the parameters their names. SGD, Adam, AdamW, RMSprop, Adagrad
// and classes derived from them are stored field by field; any other optimizer as the bytes of its own
// archive. Throws UsageError for a parameter that `model` lacks.
OptimizerSnapshot snapshot_optimizer(const std::string& name, torch::optim::Optimizer& optimizer,
                                     const NamedTensors& model);

// Checks that `description` and `tensors` fit the optimizer and its parameters, and returns the function that
// puts them in place, for the caller to run when everything else has been checked too. Throws DataError
// naming what differs first; `what` describes the source.
std::function<void()> prepare_optimizer(const std::string& name, torch::optim::Optimizer& optimizer,
                                        const NamedTensors& model, const nlohmann::json& description,
                                        const NamedTensors& tensors, const std::string& what);

}  // namespace rondo
