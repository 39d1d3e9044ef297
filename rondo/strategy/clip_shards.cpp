#include "rondo/strategy/clip_shards.h"

#include <torch/types.h>

#include <cmath>

#include "rondo/backend/collectives.h"
#include "rondo/nn/gradient_values.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/optimizers/squared_norm.h"
#include "rondo/strategy/sharded_state.h"

namespace rondo {

double clip_shards(const std::vector<Shard>& shards, const Group& group, double max_norm) {
  const at::NoGradGuard no_grad;
  at::Tensor squares = at::zeros({1}, at::kDouble);
  std::vector<at::Tensor> gradients;
  for (const Shard& shard : shards) {
    const at::Tensor& gradient = shard.local.grad();
    if (!gradient.defined() || gradient.numel() == 0) continue;
    gradients.push_back(gradient);
    if (shard.replica == 0) squares += squared_norm(gradient);
  }
  squares = squares.to(group.traits().control_device());
  all_reduce(squares, group);
  const double norm = std::sqrt(squares.item<double>());
  const double scale = max_norm / (norm + 1e-6);
  if (scale < 1.0) {
    for (at::Tensor& gradient : gradients) gradient.mul_(scale);
  }
  return norm;
}

double clip_optimized(PreparedModel& model, MasterWeights* masters, double max_norm) {
  if (masters == nullptr) return model.clip_gradients(max_norm);
  if (!model.parts().optimizes_shards())
    return clip_gradients(distinct_parameters(masters->module()), max_norm);
  return clip_shards(optimized_shards(model, masters), model.parts().group(), max_norm);
}

}  // namespace rondo
