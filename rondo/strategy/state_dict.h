#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/nn/model_tensors.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// Weights of a prepared model by name, whatever its strategy. Parameters are in the dtype that the optimizer
// changes (under a mixed precision policy these are the masters), each under the first of its names.

// Part of a tensor on one rank.
struct ShardedTensor {
  std::string name;
  at::Tensor local;  // flat where only a part is here, the tensor itself otherwise
  std::vector<std::int64_t> global_sizes;
  std::int64_t offset = 0;  // of local's first element in the whole tensor, flat in row-major order
};

// Every parameter and buffer, whole, on every rank. Collective. Tensors may be the model's own: they change
// with it.
std::vector<ModelTensor> full_state_dict(PreparedModel& model);
// What this rank has of each: parameters are the tensors that the optimizer changes. Collective, moves no
// parameter.
std::vector<ShardedTensor> sharded_state_dict(PreparedModel& model);

// Copies the values into the model, the same on all ranks; training goes on with them. Collective, outside of
// a training step. Throws UsageError, before anything is changed, naming the tensors that are missing,
// unknown or of another shape.
void load_full_state_dict(PreparedModel& model, const std::vector<ModelTensor>& state);
// The same from what sharded_state_dict() gave on as many ranks under the same strategy: also an error is a
// part that is not where this rank's is.
void load_sharded_state_dict(PreparedModel& model, const std::vector<ShardedTensor>& state);

}  // namespace rondo
