#include "rondo/nn/partial_backward.h"

#include <torch/csrc/autograd/graph_task.h>

#include <utility>

namespace rondo {
namespace {

thread_local std::optional<bool> around;  // of the innermost NestedBackward

}  // namespace

bool is_partial_backward() {
  if (around) return *around;
  const auto* const chosen = torch::autograd::get_current_graph_task_exec_info();
  return chosen != nullptr && !chosen->empty();
}

NestedBackward::NestedBackward() : outer_(std::exchange(around, is_partial_backward())) {}

NestedBackward::~NestedBackward() { around = outer_; }

}  // namespace rondo
