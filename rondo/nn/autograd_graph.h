#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace rondo {

// Makes a node of the autograd graph. libtorch 2.13 holds nodes by intrusive_ptr, earlier ones by shared_ptr.
template <class Node, class Edge = torch::autograd::Edge, class... Arguments>
auto make_graph_node(Arguments&&... arguments) {
  using Base = typename decltype(Edge::function)::element_type;
  if constexpr (std::is_same_v<decltype(Edge::function), std::shared_ptr<Base>>) {
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  } else {
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  }
}

// Where gradients leave the part of the graph between `outputs` and what was there before: edges to the
// accumulators of parameters and to nodes older than `first_node`, each once, in an order that depends on the
// graph only. Edges to `source` are left out. Nodes were recorded on this thread; `first_node` is its
// at::sequence_number::peek() before.
torch::autograd::edge_list outer_edges(const std::vector<at::Tensor>& outputs,
                                       const torch::autograd::Node* source, std::uint64_t first_node);

// Whether the backward pass that calls this, from a node of its graph, computes gradients of chosen tensors
// only, as autograd::grad() and backward(inputs) do, and not those of all parameters.
bool is_partial_backward();

// For a node that runs a backward pass of its own: while it lives, is_partial_backward() on this thread tells
// of the pass around it.
class NestedBackward {
 public:
  NestedBackward();
  ~NestedBackward();
  NestedBackward(const NestedBackward&) = delete;
  NestedBackward& operator=(const NestedBackward&) = delete;

 private:
  std::optional<bool> outer_;
};

// What decides a forward pass besides its inputs and the parameters: where the random generators stand, and
// autocast. Taken before a pass, it lets the same pass run again later. One thread uses an object.
class ForwardState {
 public:
  struct AutocastState {
    c10::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };

  // As it is now on this thread: the CPU's generator and those of the inputs' devices.
  explicit ForwardState(const std::vector<at::Tensor>& inputs);

  // As long as it lives, the thread is in that state; afterwards in the one before.
  class Restored {
   public:
    explicit Restored(const ForwardState& state);
    ~Restored();
    Restored(const Restored&) = delete;
    Restored& operator=(const Restored&) = delete;

   private:
    std::vector<std::pair<at::Generator, at::Tensor>> generators_;
    std::vector<AutocastState> autocast_;
  };

  // As long as it lives, autocast keeps no casts of weights: one that was made in a pass whose graph is
  // dropped must not be met again outside it.
  class WithoutCastCache {
   public:
    WithoutCastCache();
    ~WithoutCastCache();
    WithoutCastCache(const WithoutCastCache&) = delete;
    WithoutCastCache& operator=(const WithoutCastCache&) = delete;

   private:
    bool enabled_;
  };

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
  std::vector<AutocastState> autocast_;
};

}  // namespace rondo
