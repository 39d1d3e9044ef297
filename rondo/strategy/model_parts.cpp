#include "rondo/strategy/model_parts.h"

#include <torch/types.h>

#include <algorithm>

namespace rondo {

std::vector<Shard> UndividedModel::shards() {
  std::vector<Shard> shards;
  for (const ModelTensor& parameter : tensors_of(module_).parameters)
    shards.push_back(full_shard(parameter.name, parameter.tensor, std::max(0, group().rank())));
  return shards;
}

void UndividedModel::give_back_model() {
  for (ModelTensor& parameter : tensors_of(module_).parameters)
    parameter.tensor.set_data(at::zeros_like(parameter.tensor));
}

std::vector<ModelTensor> UndividedModel::buffers() { return tensors_of(module_).buffers; }

}  // namespace rondo
