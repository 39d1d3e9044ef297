#pragma once

#include <nlohmann/json.hpp>

#include "rondo/checkpoint/named_tensors.h"

namespace rondo {

// What an optimizer remembers, by parameter NAME: a model whose parameters are made in another order, or an
// optimizer with other groups of the same parameters in memory, is noticed instead of silently mixed up.
struct OptimizerSnapshot {
  nlohmann::json description;  // type, options and parameter names of each group, counters of each parameter
  NamedTensors tensors;        // "NAME/PARAMETER/exp_avg"; the optimizer's own tensors
};

}  // namespace rondo
