#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/shard.h"
#include "rondo/precision/training_precision.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// Parameters of which a rank has a part, identified by their tensors.
using PartSet = std::set<const c10::TensorImpl*>;

// Sums over `group` the rows of `squares` whose parameters are in `parts`. Rows of all other parameters,
// which every rank has as a whole, do not change. Row i of `squares`, float64 [parameters, ...] on the CPU,
// belongs to parameter i of `parameters`; the order is the same on all ranks. Collective.
void add_norms_of_parts(const std::vector<at::Tensor>& parameters, const PartSet& parts, const Group& group,
                        at::Tensor& squares);

// Returns the L2 norm of gradients that are distributed over the ranks of `group`. `own` are gradients of
// this rank alone; `common` are gradients that every rank has, which count once. Collective.
double norm_over_ranks(const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& common,
                       const Group& group);

// Scales the gradients of `shards`, all shards that this rank's optimizer updates, down to the L2 norm
// `max_norm` over the parameters of all ranks of `group`, as torch's clip_grad_norm_ does. Returns the norm
// before clipping. Elements with several copies count once, at copy 0 (Shard::replica). Collective.
double clip_shards(const std::vector<Shard>& shards, const Group& group, double max_norm);
// Clips the gradients that the optimizer of a prepared model uses: those of `masters` if not null, which are
// the master weights of model.module().
double clip_optimized(PreparedModel& model, MasterWeights* masters, double max_norm);

}  // namespace rondo
