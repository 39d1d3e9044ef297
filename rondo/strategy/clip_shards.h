#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/shard.h"
#include "rondo/precision/training_precision.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// Parameters of which a rank has a part, each by its tensor.
using PartSet = std::set<const c10::TensorImpl*>;

// Adds up over `group` the rows of `squares` whose parameters are in `parts`; every rank has the others as a
// whole, and their rows stay. Row i of `squares`, float64 [parameters, ...] on the CPU, belongs to parameter
// i of `parameters`, which all ranks name in one order. Collective.
void add_norms_of_parts(const std::vector<at::Tensor>& parameters, const PartSet& parts, const Group& group,
                        at::Tensor& squares);

// The L2 norm of gradients that lie in the ranks of `group`: `own` are those of this rank alone, `common`
// those that every rank has, which count once. Collective.
double norm_over_ranks(const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& common,
                       const Group& group);

// Scales the gradients of `shards`, all that this rank's optimizer changes, down to the L2 norm `max_norm`
// over the parameters of all ranks of `group`, as torch's clip_grad_norm_ does, and returns the norm before.
// Elements that several ranks have count once: where they are copy 0 (Shard::replica). Collective.
double clip_shards(const std::vector<Shard>& shards, const Group& group, double max_norm);
// The same of what the optimizer of a prepared model changes: the gradients of `masters` where there are
// some, which are of model.module().
double clip_optimized(PreparedModel& model, MasterWeights* masters, double max_norm);

}  // namespace rondo
