#include "rondo/nn/activation_checkpoint.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/autograd_graph.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/unit_state.h"

namespace rondo {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

thread_local int recompute_depth = 0;

struct Recomputing {
  Recomputing() { ++recompute_depth; }
  ~Recomputing() { --recompute_depth; }
  Recomputing(const Recomputing&) = delete;
  Recomputing& operator=(const Recomputing&) = delete;
};

// A node that receives the gradients of inputs. It never runs: the engine returns the gradients that arrive
// at it.
class Source final : public torch::autograd::Node {
 public:
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
  std::string name() const override { return "rondo::CheckpointInputs"; }
};

// Returns twins of `inputs` with the same memory and version counter; the gradient of input i arrives at
// `source` as number i. Twins are not leaves, because leaves cannot be changed in place.
std::vector<at::Tensor> twins_of(const std::vector<at::Tensor>& inputs,
                                 const std::vector<bool>& differentiable, Edge& source) {
  source.function = make_graph_node<Source>();
  std::vector<at::Tensor> twins;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    twins.push_back(inputs[i].defined() ? inputs[i].detach() : at::Tensor());
    if (differentiable[i]) torch::autograd::create_gradient_edge(twins.back(), source.function);
  }
  return twins;
}

std::string name_of(const UnitState* unit) {
  if (unit == nullptr) return "the checkpointed function";
  return rondo::str("checkpointed unit '", unit->name(), "'");
}

bool is_differentiable(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

// A scope that restores the buffers of a unit's modules (running averages) at its end, because forward
// changes them.
class BufferRestorer {
 public:
  explicit BufferRestorer(const UnitState* unit) {
    if (unit == nullptr) return;
    const at::NoGradGuard no_grad;
    for (const at::Tensor& buffer : unit->module().buffers()) {
      if (buffer.defined()) saved_.emplace_back(buffer, buffer.detach().clone());
    }
  }
  ~BufferRestorer() {
    // Dispatches below version counting: backward passes of other calls may have saved these buffers.
    const at::AutoDispatchBelowADInplaceOrView without_versions;
    for (const auto& [buffer, value] : saved_) buffer.copy_(value);
  }
  BufferRestorer(const BufferRestorer&) = delete;
  BufferRestorer& operator=(const BufferRestorer&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;
};

// A scope without users' hooks on parameters. These hooks run when the gradient arrives in the outer graph;
// otherwise the inner pass would run them too.
class HooksDisabled {
 public:
  explicit HooksDisabled(const edge_list& edges) {
    for (const Edge& edge : edges) {
      auto& hooks = edge.function->tensor_pre_hooks();
      if (hooks.empty() || std::any_of(aside_.begin(), aside_.end(),
                                       [&](const auto& entry) { return entry.first == edge.function.get(); }))
        continue;
      aside_.emplace_back(edge.function.get(), std::move(hooks));
      edge.function->tensor_pre_hooks().clear();
    }
  }
  ~HooksDisabled() {
    for (auto& [node, hooks] : aside_) node->tensor_pre_hooks() = std::move(hooks);
  }
  HooksDisabled(const HooksDisabled&) = delete;
  HooksDisabled& operator=(const HooksDisabled&) = delete;

 private:
  using Hooks = std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>;
  std::vector<std::pair<torch::autograd::Node*, Hooks>> aside_;
};

// A node that replaces a function whose recorded graph was dropped. Its gradients go to the function's
// inputs, then to all other nodes that the dropped graph led to.
class Recomputation final : public torch::autograd::Node {
 public:
  struct Memory {
    std::vector<at::Tensor> inputs;
    std::vector<std::uint32_t> versions;
    std::vector<bool> differentiable;
    CheckpointedFunction function;
  };

  Recomputation(edge_list edges, std::size_t inputs, Memory memory, ForwardState state, UnitState* unit)
      : Node(std::move(edges)),
        inputs_(inputs),
        memory_(std::move(memory)),
        state_(std::move(state)),
        samples_(SampleScope::current()),
        unit_(unit) {}

  std::string name() const override { return "rondo::Recomputation"; }

  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled()) {
      throw UsageError(
          rondo::str("create_graph was set, but ", name_of(unit_),
                     " does not support gradients of gradients; disable its activation checkpointing"));
    }
    if (!memory_) {
      throw UsageError(rondo::str(
          "a second backward pass through ", name_of(unit_),
          " after the first one freed its saved tensors; call the first one with retain_graph = true"));
    }
    if (std::none_of(gradients.begin(), gradients.end(), [](const auto& g) { return g.defined(); })) {
      return variable_list(next_edges().size());
    }
    check_versions();
    const Recomputing now;
    const BufferRestorer buffers(unit_);
    Edge source;
    edge_list roots;
    variable_list root_gradients;
    record_again(source, roots, root_gradients, gradients);
    gradients.clear();
    return inner_backward(source, roots, root_gradients);
  }

  void release_variables() override { memory_.reset(); }

 private:
  void check_versions() const {
    for (std::size_t i = 0; i < memory_->inputs.size(); ++i) {
      const at::Tensor& input = memory_->inputs[i];
      if (!input.defined() || input._version() == memory_->versions[i]) continue;
      throw UsageError(
          rondo::str("input ", i, " of ", name_of(unit_), ", a tensor of shape ", input.sizes(),
                     ", was changed in place after forward, so forward cannot be repeated; change a ",
                     "clone() of it instead, or switch the checkpointing off"));
    }
  }

  // Repeats forward. Outputs that have a gradient become the roots of the inner backward pass.
  void record_again(Edge& source, edge_list& roots, variable_list& root_gradients,
                    const variable_list& gradients) {
    if (unit_ != nullptr) unit_->notify_pre_recompute();
    {
      const ForwardState::Restored then(state_);
      const SampleScope scope(samples_);
      const CommunicationClockScope communication(clock_);
      const ForwardState::WithoutCastCache without_cast_cache;
      const at::AutoGradMode recording(true);
      const std::uint64_t first_node = at::sequence_number::peek();
      const std::vector<at::Tensor> outputs =
          memory_->function(twins_of(memory_->inputs, memory_->differentiable, source));
      if (outputs.size() != gradients.size()) differs("another number of outputs");
      for (const Edge& edge : outer_edges(outputs, source.function.get(), first_node)) {
        const auto known = next_edges().begin() + static_cast<std::ptrdiff_t>(inputs_);
        if (std::find(known, next_edges().end(), edge) == next_edges().end())
          differs("a parameter that the first forward did not use");
      }
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (!gradients[i].defined() || !is_differentiable(outputs[i])) continue;
        if (outputs[i].sizes() != gradients[i].sizes()) differs("an output of another shape");
        roots.push_back(torch::autograd::impl::gradient_edge(outputs[i]));
        root_gradients.push_back(gradients[i]);
      }
    }
    if (unit_ != nullptr) unit_->notify_post_recompute();
  }

  [[noreturn]] void differs(const char* what) const {
    throw UsageError(rondo::str(name_of(unit_),
                                " did something else when its forward was recomputed for backward: ", what,
                                "; its forward must depend on its inputs and the random generators only"));
  }

  variable_list inner_backward(const Edge& source, const edge_list& roots,
                               const variable_list& root_gradients) {
    variable_list result(next_edges().size());
    if (roots.empty()) return result;
    // Edges whose gradients the inner pass returns, and their indices in the result.
    edge_list wanted;
    std::vector<std::size_t> place;
    std::uint32_t arriving = 0;
    for (std::size_t i = 0; i < inputs_; ++i) {
      if (!memory_->differentiable[i]) continue;
      wanted.emplace_back(source.function, arriving++);
      place.push_back(i);
    }
    for (std::size_t i = inputs_; i < next_edges().size(); ++i) {
      wanted.push_back(next_edge(i));
      place.push_back(i);
    }
    const HooksDisabled aside(wanted);
    const NestedBackward nested;
    variable_list found = torch::autograd::Engine::get_default_engine().execute(
        roots, root_gradients, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/false,
        wanted);
    for (std::size_t i = 0; i < found.size(); ++i) result[place[i]] = std::move(found[i]);
    return result;
  }

  const std::size_t inputs_;
  std::optional<Memory> memory_;
  const ForwardState state_;
  // Values of the forward pass's thread; backward may run on another thread.
  const std::shared_ptr<const SampleInfo> samples_;
  const CommunicationClock clock_ = communication_clock();
  UnitState* const unit_;
};

}  // namespace

bool recomputing() { return recompute_depth > 0; }

CheckpointedCall::CheckpointedCall(std::vector<at::Tensor> inputs, UnitState* unit)
    : given_(std::move(inputs)), unit_(unit), state_(given_) {
  std::vector<bool> differentiable;
  for (const at::Tensor& input : given_) {
    differentiable.push_back(is_differentiable(input));
    versions_.push_back(input.defined() ? static_cast<std::uint32_t>(input._version()) : 0);
  }
  twins_ = twins_of(given_, differentiable, source_);
  first_node_ = at::sequence_number::peek();
}

void CheckpointedCall::finish(const std::vector<at::Tensor*>& outputs, CheckpointedFunction again) {
  Recomputation::Memory memory;
  edge_list edges;
  for (std::size_t i = 0; i < given_.size(); ++i) {
    const at::Tensor& input = given_[i];
    if (input.defined() && static_cast<std::uint32_t>(input._version()) != versions_[i]) {
      throw UsageError(
          rondo::str(name_of(unit_), " changes its input ", i, ", a tensor of shape ", input.sizes(),
                     ", in place, so forward cannot be repeated; let it change a clone(), or switch its ",
                     "checkpointing off"));
    }
    memory.differentiable.push_back(is_differentiable(input));
    edges.push_back(memory.differentiable.back() ? torch::autograd::impl::gradient_edge(input) : Edge());
    // Detached: a reference to the outer graph from inside would be a cycle when the function returns its
    // input.
    memory.inputs.push_back(input.defined() ? input.detach() : at::Tensor());
  }
  memory.versions = std::move(versions_);
  memory.function = std::move(again);

  std::vector<at::Tensor> recorded;
  for (const at::Tensor* output : outputs) recorded.push_back(*output);
  for (Edge& edge : outer_edges(recorded, source_.function.get(), first_node_))
    edges.push_back(std::move(edge));
  const std::size_t inputs = given_.size();
  const auto node =
      make_graph_node<Recomputation>(std::move(edges), inputs, std::move(memory), std::move(state_), unit_);
  for (at::Tensor* output : outputs) {
    const bool differentiable = is_differentiable(*output);
    at::Tensor twin = output->defined() ? output->detach() : at::Tensor();
    if (differentiable) {
      torch::autograd::create_gradient_edge(twin, node);
    } else {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
    }
    *output = std::move(twin);
  }
  given_.clear();
  twins_.clear();
}

std::vector<at::Tensor> checkpoint(const CheckpointedFunction& function, std::vector<at::Tensor> inputs) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  CheckpointedCall call(std::move(inputs), nullptr);
  std::vector<at::Tensor> outputs = function(call.inputs());
  std::vector<at::Tensor*> places;
  for (at::Tensor& output : outputs) places.push_back(&output);
  call.finish(places, function);
  return outputs;
}

at::Tensor checkpoint(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& input) {
  const CheckpointedFunction of_lists = [function](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{function(inputs.front())};
  };
  return checkpoint(of_lists, {input}).front();
}

namespace {

// Returns N of "every-N"; empty for any other text.
std::optional<std::int64_t> interval_of(std::string_view which) {
  constexpr std::string_view kPrefix = "every-";
  if (!which.starts_with(kPrefix)) return std::nullopt;
  which.remove_prefix(kPrefix.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), number);
  if (error != std::errc() || end != which.data() + which.size() || number < 1) {
    throw UsageError(
        str("checkpointing of activations: 'every-", which, "': expected a number of units, at least 1"));
  }
  return number;
}

bool is_inside(const UnitState& unit, const UnitState& outer) {
  return outer.name().empty() || unit.name().starts_with(outer.name() + ".");
}

std::vector<UnitState*> outermost(const std::vector<UnitState*>& units) {
  std::vector<UnitState*> result;  // outer units come first
  for (UnitState* unit : units) {
    if (std::none_of(result.begin(), result.end(),
                     [&](UnitState* outer) { return is_inside(*unit, *outer); }))
      result.push_back(unit);
  }
  return result;
}

std::vector<UnitState*> choose(const std::vector<UnitState*>& units, std::string_view which) {
  if (which == "all") return outermost(units);
  std::vector<UnitState*> chosen;
  if (const auto interval = interval_of(which)) {
    const std::vector<UnitState*> candidates = outermost(units);
    for (std::size_t i = 0; i < candidates.size(); i += static_cast<std::size_t>(*interval))
      chosen.push_back(candidates[i]);
    return chosen;
  }
  for (const std::string& name : split(which, ',')) {
    const auto found = std::find_if(units.begin(), units.end(),
                                    [&](const UnitState* unit) { return unit->name() == trim(name); });
    if (found == units.end()) {
      std::vector<std::string> known;
      for (const UnitState* unit : units) known.push_back(unit->name());
      throw UsageError(str("checkpointing of activations: the model has no unit '", trim(name),
                           "'; its units are ", join(known, ", ")));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace

std::vector<std::string> checkpoint_activations(const torch::nn::Module& model, std::string_view which) {
  const std::vector<UnitState*> units = units_of(model);
  std::vector<UnitState*> chosen;
  if (which != "none") {
    if (units.empty()) {
      throw UsageError(str("checkpointing of activations ('", which,
                           "'): the model has no units; wrap its layers' types in rondo::Unit"));
    }
    chosen = choose(units, which);
  }
  std::vector<std::string> names;
  for (UnitState* unit : units) {
    const bool on = std::find(chosen.begin(), chosen.end(), unit) != chosen.end();
    unit->set_checkpointed(on);
    if (on) names.push_back(unit->name());
  }
  return names;
}

}  // namespace rondo
