#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/nn/model_tensors.h"
#include "rondo/nn/unit_state.h"

namespace rondo {

// A unit and the parameters that are its own.
struct ModelUnit {
  // Path of its module in the model, "root" for what no unit holds.
  std::string name = {};
  UnitState* state = nullptr;  // null for the root
  std::vector<ModelTensor> parameters = {};

  // Of all its parameters.
  std::uint64_t parameter_bytes() const;
};

// What the part of a model outside all units is called.
inline constexpr const char* kRootUnit = "root";

// Divides the parameters of `model` among its units, and tells each unit its name. A parameter belongs to the
// innermost unit around it, one that several modules share to the innermost unit around all of them. The root
// comes first and is left out when it has no parameters; the others follow in the order of registration,
// which is that of forward in most models. Units without parameters of their own are left out.
std::vector<ModelUnit> partition_into_units(const torch::nn::Module& model);

// All units in `model`, outer before inner, in order of registration, those without parameters included.
// Tells each its name.
std::vector<UnitState*> units_of(const torch::nn::Module& model);

}  // namespace rondo
