#pragma once

#include <torch/nn/module.h>

#include "rondo/nn/parallel_style.h"

namespace rondo {

// Turns a model into its tensor-parallel form, in place: every rank keeps its part of the layers that `rules`
// name, and forward passes communicate over `group`.
//
//     Division division = parallelize(*model, {{{"*.up", column}, {"*.down", row}}}, tensor_group);
//
// The layers are ParallelLinear, ParallelEmbedding, ParallelLayerNorm and own ones (ParallelLayer); children
// of a torch::nn::Sequential may be torch::nn::Linear, Embedding and LayerNorm, which are exchanged.
// Parameters keep their names, and what the result has of them says where in the full ones the parts are. All
// ranks have the same values before, of which they keep their part. Call it before an optimizer or a strategy
// sees the model. Communicates nothing.
//
// Throws UsageError naming the pattern for one that fits nothing; the layer for one that cannot be divided
// so, sizes that the ranks do not divide, and a torch::nn::Dropout, which draws otherwise on every rank
// (SampleDropout does not).
Division parallelize(torch::nn::Module& model, const ParallelRules& rules, const Group& group);

// Whether a pattern of ParallelRules fits the path.
bool fits_pattern(const std::string& path, const std::string& pattern);

}  // namespace rondo
