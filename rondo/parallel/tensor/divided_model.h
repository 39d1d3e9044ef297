#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>

#include "rondo/backend/context.h"
#include "rondo/nn/shard.h"
#include "rondo/parallel/tensor/tensor_options.h"

namespace rondo {

// What of a model one of the ranks has that compute a sample together.
struct DividedModel {
  std::map<std::string, Shard> addresses = {};  // of the divided parameters, by name, in the full ones
  bool divided_outputs = false;                 // the first output has this rank's classes only
};

// Leaves this rank its part of `module` along the dimensions "tensor", by the options' rules or the module's
// own, and "context" of the mesh: it computes with that and the other ranks' from now on. All ranks have the
// same values. Communicates nothing. Throws UsageError as parallelize() does, and for a model that says
// nothing of such a division.
DividedModel divide_model(torch::nn::Module& module, const Context& context, const TensorOptions& options);

// Throws UsageError for rules that are none.
void check(const TensorOptions& options);

}  // namespace rondo
