#include "rondo/strategy/clip_shards.h"

#include <torch/types.h>

#include <cmath>

#include "rondo/backend/collectives.h"
#include "rondo/nn/gradient_norm.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/strategy/sharded_state.h"

namespace rondo {

void add_norms_of_parts(const std::vector<at::Tensor>& parameters, const PartSet& parts, const Group& group,
                        at::Tensor& squares) {
  at::Tensor sums = squares.clone().to(group.traits().control_device());
  all_reduce(sums, group, ReduceOp::SUM);
  sums = sums.cpu();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    if (parts.contains(parameters[i].unsafeGetTensorImpl())) squares[row].copy_(sums[row]);
  }
}

double norm_over_ranks(const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& common,
                       const Group& group) {
  at::Tensor squares = at::tensor({sum_of_squares(own)}, at::kDouble).to(group.traits().control_device());
  all_reduce(squares, group);
  return std::sqrt(squares.item<double>() + sum_of_squares(common));
}

double clip_shards(const std::vector<Shard>& shards, const Group& group, double max_norm) {
  std::vector<at::Tensor> all, counted;
  for (const Shard& shard : shards) {
    all.push_back(shard.local);
    if (shard.replica == 0) counted.push_back(shard.local);
  }
  const double norm = norm_over_ranks(gradients_of(counted), {}, group);
  scale_to_norm(gradients_of(all), norm, max_norm);
  return norm;
}

double clip_optimized(PreparedModel& model, MasterWeights* masters, double max_norm) {
  if (masters == nullptr) return model.clip_gradients(max_norm);
  if (!model.parts().optimizes_shards())
    return clip_gradients(distinct_parameters(masters->module()), max_norm);
  return clip_shards(optimized_shards(model, masters), model.parts().group(), max_norm);
}

}  // namespace rondo
