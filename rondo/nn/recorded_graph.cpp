#include "rondo/nn/recorded_graph.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

namespace rondo {

using torch::autograd::Edge;
using torch::autograd::Node;

torch::autograd::edge_list outer_edges(const std::vector<at::Tensor>& outputs, const Node* source,
                                       std::uint64_t first_node) {
  const std::uint64_t this_thread = at::RecordFunction::currentThreadId();
  const auto is_inner = [&](const Node& node) {
    return dynamic_cast<const torch::autograd::AccumulateGrad*>(&node) == nullptr &&
           node.thread_id() == this_thread && node.sequence_nr() >= first_node;
  };
  torch::autograd::edge_list found;
  std::unordered_set<const Node*> visited;
  std::vector<const Node*> to_visit;
  const auto follow = [&](const Edge& edge) {
    const Node* const node = edge.function.get();
    if (node == nullptr || node == source) return;
    if (is_inner(*node)) {
      if (visited.insert(node).second) to_visit.push_back(node);
    } else if (std::find(found.begin(), found.end(), edge) == found.end()) {
      found.push_back(edge);
    }
  };
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) follow(torch::autograd::impl::gradient_edge(output));
  }
  while (!to_visit.empty()) {
    const Node* const node = to_visit.back();
    to_visit.pop_back();
    for (const Edge& edge : node->next_edges()) follow(edge);
  }
  return found;
}

}  // namespace rondo
