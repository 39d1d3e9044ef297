#pragma once

#include <optional>

namespace rondo {

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

}  // namespace rondo
