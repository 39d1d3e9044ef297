#include "rondo/nn/autograd_graph.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>
#include <utility>

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

namespace {

thread_local std::optional<bool> around;  // value of the innermost NestedBackward

}  // namespace

bool is_partial_backward() {
  if (around) return *around;
  const auto* const chosen = torch::autograd::get_current_graph_task_exec_info();
  return chosen != nullptr && !chosen->empty();
}

NestedBackward::NestedBackward() : outer_(std::exchange(around, is_partial_backward())) {}

NestedBackward::~NestedBackward() { around = outer_; }

namespace {

at::Tensor state_of(at::Generator& generator) {
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator& generator, const at::Tensor& state) {
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

ForwardState::AutocastState autocast_of(c10::DeviceType device) {
  return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
}

void set_autocast(const ForwardState::AutocastState& state) {
  at::autocast::set_autocast_enabled(state.device, state.enabled);
  at::autocast::set_autocast_dtype(state.device, state.dtype);
}

}  // namespace

ForwardState::ForwardState(const std::vector<at::Tensor>& inputs) {
  std::vector<c10::Device> devices = {c10::Device(c10::kCPU)};
  for (const at::Tensor& input : inputs) {
    if (!input.defined() || std::find(devices.begin(), devices.end(), input.device()) != devices.end())
      continue;
    devices.push_back(input.device());
  }
  for (const c10::Device device : devices) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    at::Tensor state = state_of(generator);
    generators_.emplace_back(std::move(generator), std::move(state));
    autocast_.push_back(autocast_of(device.type()));
  }
}

ForwardState::Restored::Restored(const ForwardState& state) {
  for (const auto& [generator, then] : state.generators_) {
    at::Generator handle = generator;
    generators_.emplace_back(handle, state_of(handle));
    set_state(handle, then);
  }
  for (const AutocastState& then : state.autocast_) {
    autocast_.push_back(autocast_of(then.device));
    set_autocast(then);
  }
}

ForwardState::Restored::~Restored() {
  for (auto& [generator, before] : generators_) set_state(generator, before);
  for (const AutocastState& before : autocast_) set_autocast(before);
}

ForwardState::WithoutCastCache::WithoutCastCache() : enabled_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_cache_enabled(false);
}

ForwardState::WithoutCastCache::~WithoutCastCache() { at::autocast::set_autocast_cache_enabled(enabled_); }

}  // namespace rondo
