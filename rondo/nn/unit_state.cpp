#include "rondo/nn/unit_state.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <functional>
#include <map>

#include "rondo/nn/autograd_graph.h"
#include "rondo/nn/unit.h"

namespace rondo {
namespace {

using torch::autograd::variable_list;

// A node that passes gradients through and calls a function.
class Boundary final : public torch::autograd::Node {
 public:
  Boundary(const char* name, torch::autograd::edge_list edges, std::function<void()> crossed)
      : Node(std::move(edges)), name_(name), crossed_(std::move(crossed)) {}

  variable_list apply(variable_list&& gradients) override {
    crossed_();
    return std::move(gradients);
  }
  std::string name() const override { return name_; }

 private:
  const char* name_;
  const std::function<void()> crossed_;
};

// Inserts a boundary between those of `tensors` that require a gradient and their later uses. Returns false
// if there are none.
bool put_boundary(const char* name, const std::vector<at::Tensor*>& tensors, std::function<void()> crossed) {
  if (!at::GradMode::is_enabled()) return false;
  std::vector<at::Tensor*> differentiable;
  torch::autograd::edge_list edges;
  for (at::Tensor* tensor : tensors) {
    if (!tensor->defined() || !tensor->requires_grad()) continue;
    differentiable.push_back(tensor);
    edges.push_back(torch::autograd::impl::gradient_edge(*tensor));
  }
  if (differentiable.empty()) return false;
  const auto boundary = make_graph_node<Boundary>(name, std::move(edges), std::move(crossed));
  for (at::Tensor* tensor : differentiable) {
    // A twin that is not a view, so that modules may change it in place.
    at::Tensor twin = tensor->detach();
    torch::autograd::create_gradient_edge(twin, boundary);
    *tensor = std::move(twin);
  }
  return true;
}

void cast(const std::vector<at::Tensor*>& tensors, std::optional<at::ScalarType> dtype) {
  if (!dtype) return;
  for (at::Tensor* tensor : tensors) {
    if (tensor->defined() && tensor->is_floating_point()) *tensor = tensor->to(*dtype);
  }
}

}  // namespace

std::shared_ptr<void> UnitState::keep_alive() const { return module_.weak_from_this().lock(); }

void UnitState::attach(std::shared_ptr<UnitObserver> observer) { observers_.push_back(std::move(observer)); }

void UnitState::detach(const std::shared_ptr<UnitObserver>& observer) { std::erase(observers_, observer); }

// Loops by index, because an observer may attach others. NOLINTBEGIN(modernize-loop-convert)
void UnitState::notify_pre_forward() {
  for (std::size_t i = 0; i < observers_.size(); ++i) observers_[i]->pre_forward(*this);
}

void UnitState::notify_post_forward() {
  for (std::size_t i = observers_.size(); i-- > 0;) observers_[i]->post_forward(*this);
}

void UnitState::notify_pre_backward() {
  for (std::size_t i = 0; i < observers_.size(); ++i) observers_[i]->pre_backward(*this);
}

void UnitState::notify_post_backward() {
  for (std::size_t i = observers_.size(); i-- > 0;) observers_[i]->post_backward(*this);
}

void UnitState::notify_pre_recompute() {
  for (std::size_t i = 0; i < observers_.size(); ++i) observers_[i]->pre_recompute(*this);
}

void UnitState::notify_post_recompute() {
  for (std::size_t i = observers_.size(); i-- > 0;) observers_[i]->post_recompute(*this);
}
// NOLINTEND(modernize-loop-convert)

UnitCall::UnitCall(UnitState& state) : state_(state) { state_.notify_pre_forward(); }

void UnitCall::mark_inputs(const std::vector<at::Tensor*>& inputs) {
  has_input_boundary_ =
      put_boundary("rondo::UnitInputs", inputs, [state = &state_] { state->notify_post_backward(); });
  cast(inputs, state_.casts().inputs);
}

void UnitCall::mark_outputs(const std::vector<at::Tensor*>& outputs) {
  cast(outputs, state_.casts().outputs);
  state_.notify_post_forward();
  put_boundary("rondo::UnitOutputs", outputs, [state = &state_, closes_itself = has_input_boundary_] {
    state->notify_pre_backward();
    if (!closes_itself) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [state] { state->notify_post_backward(); });
    }
  });
}

namespace {

// Units around a place in the model, outermost first.
using Path = std::vector<UnitState*>;

struct Found {
  std::string name;
  at::Tensor tensor;
  Path path;
};

class Walk {
 public:
  void visit(const torch::nn::Module& module, const std::string& name, Path path) {
    if (UnitState* unit = unit_at(module)) {
      unit->set_name(name);
      // A module that is registered twice is one unit.
      if (std::find(units_.begin(), units_.end(), unit) == units_.end()) units_.push_back(unit);
      path.push_back(unit);
    }
    const std::string prefix = name.empty() ? name : name + ".";
    for (const auto& entry : module.named_parameters(/*recurse=*/false)) {
      add(prefix + entry.key(), entry.value(), path);
    }
    for (const auto& entry : module.named_children()) visit(*entry.value(), prefix + entry.key(), path);
  }

  const std::vector<UnitState*>& units() const { return units_; }
  const std::vector<Found>& parameters() const { return parameters_; }

 private:
  // Returns a mutable unit of a const module: observers do not change the module.
  static UnitState* unit_at(const torch::nn::Module& module) {
    auto* unit = dynamic_cast<const UnitBase*>(&module);
    return unit ? &const_cast<UnitBase*>(unit)->unit_state() : nullptr;
  }

  void add(std::string name, const at::Tensor& tensor, const Path& path) {
    if (!tensor.defined()) return;
    const auto [place, is_new] = index_.try_emplace(tensor.unsafeGetTensorImpl(), parameters_.size());
    if (is_new) {
      parameters_.push_back({std::move(name), tensor, path});
      return;
    }
    Path& shared = parameters_[place->second].path;
    const auto end = std::mismatch(shared.begin(), shared.end(), path.begin(), path.end()).first;
    shared.erase(end, shared.end());
  }

  std::vector<UnitState*> units_;
  std::vector<Found> parameters_;
  std::map<const void*, std::size_t> index_;
};

}  // namespace

std::uint64_t ModelUnit::parameter_bytes() const {
  std::uint64_t bytes = 0;
  for (const ModelTensor& parameter : parameters) bytes += parameter.tensor.nbytes();
  return bytes;
}

std::vector<UnitState*> units_of(const torch::nn::Module& model) {
  Walk walk;
  walk.visit(model, "", {});
  return walk.units();
}

std::vector<ModelUnit> partition_into_units(const torch::nn::Module& model) {
  Walk walk;
  walk.visit(model, "", {});
  std::vector<ModelUnit> units = {{.name = kRootUnit}};
  std::map<UnitState*, std::size_t> place = {{nullptr, 0}};
  for (UnitState* state : walk.units()) {
    place[state] = units.size();
    // The model itself may be a unit.
    units.push_back({.name = state->name().empty() ? kRootUnit : state->name(), .state = state});
  }
  for (const Found& found : walk.parameters()) {
    ModelUnit& unit = units[place.at(found.path.empty() ? nullptr : found.path.back())];
    unit.parameters.push_back({found.name, found.tensor});
  }
  std::erase_if(units, [](const ModelUnit& unit) { return unit.parameters.empty(); });
  return units;
}

}  // namespace rondo
