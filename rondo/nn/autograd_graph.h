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

// Creates a node of the autograd graph. libtorch 2.13 holds nodes by intrusive_ptr, earlier versions by
// shared_ptr.
template <class Node, class Edge = torch::autograd::Edge, class... Arguments>
auto make_graph_node(Arguments&&... arguments) {
  using Base = typename decltype(Edge::function)::element_type;
  if constexpr (std::is_same_v<decltype(Edge::function), std::shared_ptr<Base>>) {
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  } else {
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  }
}

// Returns the edges at which gradients leave the part of the graph that was recorded between `first_node` and
// `outputs`. These edges lead to accumulators of parameters and to nodes older than `first_node`. Each
// appears once, in an order that depends on the graph only. Edges to `source` are omitted. The nodes were
// recorded on this thread; `first_node` is its earlier at::sequence_number::peek().
torch::autograd::edge_list outer_edges(const std::vector<at::Tensor>& outputs,
                                       const torch::autograd::Node* source, std::uint64_t first_node);

// Returns whether the backward pass that calls this from a node of its graph computes gradients of chosen
// tensors only. autograd::grad() and backward(inputs) do so.
bool is_partial_backward();

// A scope for a node that runs an inner backward pass. Inside the scope, is_partial_backward() on this thread
// describes the outer pass.
class NestedBackward {
 public:
  NestedBackward();
  ~NestedBackward();
  NestedBackward(const NestedBackward&) = delete;
  NestedBackward& operator=(const NestedBackward&) = delete;

 private:
  std::optional<bool> outer_;
};

// State besides inputs and parameters that a forward pass depends on: random generators and autocast. A state
// captured before a pass lets the same pass run again later. An object is used by one thread.
class ForwardState {
 public:
  struct AutocastState {
    c10::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };

  // Captures this thread's state: the CPU's generator, those of the inputs' devices, and autocast.
  explicit ForwardState(const std::vector<at::Tensor>& inputs);

  // A scope in which this thread has the captured state; its end restores the previous state.
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

  // A scope in which autocast does not cache casts of weights: a cast from a pass whose graph is dropped must
  // not be reused outside.
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
