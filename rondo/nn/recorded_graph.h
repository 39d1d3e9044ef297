#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <vector>

namespace rondo {

// Where gradients leave the part of the graph between `outputs` and what was there before: edges to the
// accumulators of parameters and to nodes older than `first_node`, each once, in an order that depends on the
// graph only. Edges to `source` are left out. Nodes were recorded on this thread; `first_node` is its
// at::sequence_number::peek() before.
torch::autograd::edge_list outer_edges(const std::vector<at::Tensor>& outputs,
                                       const torch::autograd::Node* source, std::uint64_t first_node);

}  // namespace rondo
