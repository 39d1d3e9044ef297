#pragma once

#include <torch/types.h>

#include <vector>

#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/sharded/sharded_options.h"

// Shared by the tests of state dicts.
namespace rondo::testing {

// Returns options for several segments per unit, and with different strategies between units where they are
// drawn.
inline ShardedOptions state_options() {
  ShardedOptions options;
  options.find_unused_parameters = true;
  options.strategy_seed = 7;
  options.segment_bytes = Bytes{256};
  return options;
}

inline std::vector<ModelTensor> copies_of(const std::vector<ModelTensor>& state) {
  std::vector<ModelTensor> copy;
  for (const ModelTensor& entry : state) copy.push_back({entry.name, entry.tensor.clone()});
  return copy;
}

}  // namespace rondo::testing
