#include "rondo/parallel/server/served_model.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <set>

#include "rondo/backend/requests/dense_tensor.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/memory/scope.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/optimizers/optimizer_fields.h"

namespace rondo {
namespace {

using server::OptimizerKind;
using server::OptimizerSpec;

[[noreturn]] void refuse_optimizer(const std::string& what) {
  throw UsageError(str("parameter servers have the optimizers SGD, Adam, AdamW and Adagrad, not ", what));
}

OptimizerSpec spec_of(const torch::optim::SGDOptions& options) {
  return {.kind = OptimizerKind::sgd,
          .nesterov = options.nesterov() ? 1U : 0U,
          .learning_rate = options.lr(),
          .weight_decay = options.weight_decay(),
          .momentum = options.momentum(),
          .dampening = options.dampening()};
}

template <class Options>
OptimizerSpec adam_of(const Options& options, OptimizerKind kind) {
  if (options.amsgrad()) refuse_optimizer("Adam with amsgrad");
  return {.kind = kind,
          .learning_rate = options.lr(),
          .weight_decay = options.weight_decay(),
          .beta1 = std::get<0>(options.betas()),
          .beta2 = std::get<1>(options.betas()),
          .epsilon = options.eps()};
}
OptimizerSpec spec_of(const torch::optim::AdamOptions& options) {
  return adam_of(options, OptimizerKind::adam);
}
OptimizerSpec spec_of(const torch::optim::AdamWOptions& options) {
  return adam_of(options, OptimizerKind::adamw);
}
OptimizerSpec spec_of(const torch::optim::AdagradOptions& options) {
  return {.kind = OptimizerKind::adagrad,
          .learning_rate = options.lr(),
          .weight_decay = options.weight_decay(),
          .epsilon = options.eps(),
          .learning_rate_decay = options.lr_decay(),
          .initial_accumulator = options.initial_accumulator_value()};
}
OptimizerSpec spec_of(const torch::optim::RMSpropOptions&) { refuse_optimizer("RMSprop"); }
OptimizerSpec spec_of(const RuleOptions&) { refuse_optimizer("Lion, LAMB or LARS"); }

// Calls use(tensor&...) or use(count&) for the fields that correspond to a server's slots and count of
// updates.
template <class Slots, class Count>
void visit_fields(torch::optim::SGDParamState& state, const Slots& slots, const Count&) {
  slots(0, state.momentum_buffer());
}
template <class Slots, class Count>
void visit_fields(torch::optim::AdamParamState& state, const Slots& slots, const Count& count) {
  slots(0, state.exp_avg());
  slots(1, state.exp_avg_sq());
  count(state.step());
}
template <class Slots, class Count>
void visit_fields(torch::optim::AdamWParamState& state, const Slots& slots, const Count& count) {
  slots(0, state.exp_avg());
  slots(1, state.exp_avg_sq());
  count(state.step());
}
template <class Slots, class Count>
void visit_fields(torch::optim::AdagradParamState& state, const Slots& slots, const Count& count) {
  slots(0, state.sum());
  count(state.step());
}
template <class Slots, class Count>
void visit_fields(torch::optim::RMSpropParamState&, const Slots&, const Count&) {
  refuse_optimizer("RMSprop");
}
template <class Slots, class Count>
void visit_fields(RuleState&, const Slots&, const Count&) {
  refuse_optimizer("Lion, LAMB or LARS");
}

}  // namespace

OptimizerSpec served_optimizer(const torch::optim::Optimizer& optimizer, std::size_t group) {
  OptimizerSpec spec;
  const torch::optim::OptimizerOptions& options =
      const_cast<torch::optim::Optimizer&>(optimizer).param_groups()[group].options();
  const bool known = with_optimizer_kind(optimizer, [&]<class Kind>(Kind) {
    spec = spec_of(static_cast<const typename Kind::Options&>(options));
  });
  if (!known) refuse_optimizer("a custom optimizer");
  return spec;
}

void set_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, const ServedState& served) {
  with_optimizer_kind(optimizer, [&]<class Kind>(Kind) {
    auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
    if (!state) state = std::make_unique<typename Kind::State>();
    visit_fields(
        static_cast<typename Kind::State&>(*state),
        [&](int slot, at::Tensor& tensor) { tensor = served.slots[slot]; },
        [&](std::int64_t& updates) { updates = static_cast<std::int64_t>(served.updates); });
  });
}

ServedState state_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  ServedState served;
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end() || !found->second) return served;
  with_optimizer_kind(optimizer, [&]<class Kind>(Kind) {
    // SGD has no counter: existing momentum means at least one update.
    visit_fields(
        static_cast<typename Kind::State&>(*found->second),
        [&](int slot, at::Tensor& tensor) {
          served.slots[slot] = tensor;
          if (tensor.defined()) served.updates = 1;
        },
        [&](std::int64_t& updates) { served.updates = static_cast<std::uint64_t>(updates); });
  });
  return served;
}

namespace {

std::span<float> values_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

// Returns the values on the CPU: the tensor itself, or a copy.
at::Tensor on_host(const at::Tensor& tensor) { return dense(tensor, "push").data; }

}  // namespace

// The model's parts. The whole model is on this worker once it has been pulled.
class ServedModel::Parts final : public UndividedModel {
 public:
  explicit Parts(ServedModel& model) : UndividedModel(*model.module_), model_(model) {}
  void flush_for(ForwardPasses passes) override {
    model_.pull_whole();
    if (passes == ForwardPasses::together && model_.is_chief_) model_.load_optimizer();
  }
  void take_values(NewValues) override {
    if (!model_.is_chief_) return;
    model_.store_values();
    model_.optimizer_is_newer_ = true;
  }

 private:
  ServedModel& model_;
};

std::vector<server::VariableSpec> ServedModel::variables_of(const torch::nn::Module& module) {
  std::set<const at::TensorImpl*> sparse;
  for (const SparseLayer& layer : sparse_layers(module)) sparse.insert(layer.weight.unsafeGetTensorImpl());
  std::vector<server::VariableSpec> variables;
  for (const auto& [name, parameter] : tensors_of(module).parameters) {
    if (parameter.scalar_type() != at::kFloat || !parameter.is_contiguous()) {
      throw UsageError(str("parameter servers hold contiguous float32 parameters; ", name, " is ",
                           describe_shape(parameter),
                           "; use opt level O0 or O1 (--precision), or another strategy"));
    }
    const std::int64_t rows = parameter.dim() == 0 ? 1 : parameter.size(0);
    variables.push_back({.name = name,
                         .rows = static_cast<std::uint64_t>(rows),
                         .row_elements = static_cast<std::uint64_t>(rows == 0 ? 0 : parameter.numel() / rows),
                         .sparse = sparse.contains(parameter.unsafeGetTensorImpl())});
  }
  return variables;
}

ServedModel::ServedModel(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<server::Cluster> cluster,
                         bool is_chief)
    : module_(std::move(module)), cluster_(std::move(cluster)), is_chief_(is_chief) {
  for (const auto& [name, parameter] : tensors_of(*module_).parameters) {
    variable_of_[parameter.unsafeGetTensorImpl()] = parameters_.size();
    parameters_.push_back(parameter);
  }
  group_of_.resize(parameters_.size());
  pushed_.resize(parameters_.size());
  feedback_.resize(parameters_.size());
  parts_ = std::make_unique<Parts>(*this);
  step_ = cluster_->clock();
  is_open_ = cluster_->was_open();
  if (is_chief_ && !is_open_) store_values();
  std::vector<ModelTensor> trained;
  for (std::size_t v = 0; v < parameters_.size(); ++v) {
    if (!parameters_[v].requires_grad()) continue;
    trained.push_back({.name = cluster_->variables()[v].name, .tensor = parameters_[v]});
    trained_.push_back(v);
    if (!cluster_->variables()[v].sparse) reserve_feedback(v);
  }
  // Not sole: a group's ranks reduce the gradients that this object pushes.
  GradientListener& listener = *this;
  hooks_ = std::make_unique<GradientHooks>(trained, listener, /*is_sole=*/false);
}

ServedModel::~ServedModel() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    cluster_->leave();
  } catch (const std::exception& error) {
    log::warning("this worker could not sign off from its servers: ", error.what());
  }
}

void ServedModel::store_values() {
  for (std::size_t v = 0; v < parameters_.size(); ++v)
    cluster_->write_state(v, -1, values_of(on_host(parameters_[v])), 0, {});
}

// Opens the training for all workers when the chief starts its first step; other workers wait for that.
void ServedModel::open() {
  if (is_open_) return;
  is_open_ = true;
  if (is_chief_) {
    cluster_->open();
  } else {
    cluster_->wait_until_open();
  }
}

void ServedModel::reserve_feedback(std::size_t v) {
  const MemoryScope scope(MemoryCategory::communication, kRootMemoryUnit);
  if (cluster_->codec() != nullptr) feedback_[v].reserve(*cluster_->codec(), parameters_[v].numel(), 0);
}

CommState ServedModel::feedback() const {
  CommState state;
  for (std::size_t v = 0; is_chief_ && v < feedback_.size(); ++v)
    feedback_[v].add_to(state, cluster_->variables()[v].name + "/");
  return state;
}

CommunicationState ServedModel::communication_state() const {
  return save_feedback(feedback(), cluster_->codec_name());
}

std::string ServedModel::restore_communication(const std::vector<CommunicationState>& of_ranks) {
  const CommState memory = feedback();
  if (memory.empty()) return {};
  return codec_restart_warning(restore_own_state(of_ranks, 0, 1, [&](const CommState& own) {
    return restore_feedback(memory, cluster_->codec_name(), own);
  }));
}

void ServedModel::start_pass(const LocalBatch& batch) {
  if (!in_window_) {
    const TimePoint begun = Clock::now();
    if (batch.optimizer != nullptr) use(*batch.optimizer);
    open();
    // Ends an unfinished step: a window with non-finite gradients has no step(), and a failed one may have
    // pushed some.
    const bool some = std::find(pushed_.begin(), pushed_.end(), true) != pushed_.end();
    if (std::exchange(step_is_open_, true)) end_step(some ? samples_ : 0);
    cluster_->begin_step(step_);
    pull();
    exposed_ = Clock::now() - begun;
  }
  in_window_ = !batch.synchronise;
  samples_ = static_cast<double>(batch.samples);
  pushes_early_ = batch.synchronise && !batch.gradients_are_read && batch.optimizer != nullptr;
}

void ServedModel::end_step(double weight) {
  cluster_->end_step(weight);
  ++step_;
  pushed_.assign(pushed_.size(), false);
}

void ServedModel::arrived(std::size_t number) {
  const std::size_t v = trained_[number];
  if (!pushes_early_ || !group_of_[v]) return;
  if (pushed_[v]) {
    throw Error(
        str("parameter '", cluster_->variables()[v].name,
            "' got a second gradient in one backward pass, when the first was pushed; make one pass of "
            "them, or accumulate them in a window of several"));
  }
  push(v, parameters_[v]);
}

void ServedModel::use(torch::optim::Optimizer& optimizer) {
  optimizer_ = &optimizer;
  group_of_.assign(parameters_.size(), std::nullopt);
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    for (const at::Tensor& parameter : optimizer.param_groups()[group].params()) {
      const auto found = variable_of_.find(parameter.unsafeGetTensorImpl());
      if (found == variable_of_.end()) {
        throw UsageError(
            "the optimizer has a parameter that is not in the model; servers hold the model's parameters "
            "only");
      }
      group_of_[found->second] = group;
    }
  }
  if (std::exchange(optimizer_is_newer_, false)) store_optimizer();
}

void ServedModel::pull() {
  const auto& variables = cluster_->variables();
  for (std::size_t v = 0; v < parameters_.size(); ++v) {
    // The servers send only rows that changed since the last pull, so current values are read.
    const DenseTensor values = dense(parameters_[v], "pull", /*reads=*/variables[v].sparse);
    if (variables[v].sparse) {
      cluster_->pull_changes(v, values.data.data_ptr<float>());
    } else {
      cluster_->pull(v, values_of(values.data));
    }
    values.copy_back();
  }
}

void ServedModel::pull_whole() {
  if (!is_open_ && !is_chief_) return;  // the chief may not have stored its values yet
  cluster_->flush();
  pull();
}

void ServedModel::apply_step(torch::optim::Optimizer& optimizer) {
  const TimePoint begun = Clock::now();
  use(optimizer);
  for (std::size_t v = 0; v < parameters_.size(); ++v) {
    if (group_of_[v] && !pushed_[v] && parameters_[v].grad().defined()) push(v, parameters_[v]);
  }
  end_step(samples_);
  step_is_open_ = false;
  exposed_ += Clock::now() - begun;
}

void ServedModel::push(std::size_t v, const at::Tensor& parameter) {
  const server::Entry how{.weight = samples_, .spec = served_optimizer(*optimizer_, group_of_[v].value())};
  pushed_[v] = true;
  if (!parameter.grad().is_sparse()) {
    const at::Tensor gradient = on_host(parameter.grad());
    reserve_feedback(v);
    cluster_->push(v, values_of(gradient), how, residual_part(feedback_[v].values, 0, gradient.numel()));
    return;
  }
  if (!cluster_->variables()[v].sparse) {
    throw UsageError(str("the gradient of ", cluster_->variables()[v].name,
                         " is sparse, which only those of Embedding and EmbeddingBag can be"));
  }
  const at::Tensor gradient = parameter.grad().coalesce();
  const at::Tensor rows = on_host(gradient.indices()[0]);
  const at::Tensor values = on_host(gradient.values());
  const auto* const numbers = reinterpret_cast<const std::uint64_t*>(rows.data_ptr<std::int64_t>());
  cluster_->push_rows(v, {numbers, static_cast<std::size_t>(rows.numel())}, values.data_ptr<float>(), how);
}

void ServedModel::load_optimizer() {
  if (optimizer_ == nullptr || optimizer_is_newer_) return;
  cluster_->hold();
  for (std::size_t group = 0; group < optimizer_->param_groups().size(); ++group) {
    const int slots = server::slots_of(served_optimizer(*optimizer_, group));
    for (const at::Tensor& parameter : optimizer_->param_groups()[group].params()) {
      const std::size_t v = variable_of_.at(parameter.unsafeGetTensorImpl());
      ServedState state;
      // Reads the values together with the slots, while the servers apply nothing.
      const auto read = [&](int slot, const at::Tensor& to) {
        const DenseTensor values = dense(to, "read", /*reads=*/false);
        state.updates = cluster_->read_state(v, slot, values_of(values.data));
        values.copy_back();
      };
      for (int slot = 0; slot < slots; ++slot) {
        state.slots[slot] = at::empty(parameter.sizes(), parameter.options().requires_grad(false));
        read(slot, state.slots[slot]);
      }
      read(-1, parameter);
      if (slots > 0 && state.updates > 0) set_state(*optimizer_, parameter, state);
    }
  }
  cluster_->release();
}

void ServedModel::store_optimizer() {
  for (std::size_t group = 0; group < optimizer_->param_groups().size(); ++group) {
    const server::OptimizerSpec spec = served_optimizer(*optimizer_, group);
    for (std::size_t v = 0; v < parameters_.size(); ++v) {
      const ServedState state = state_of(*optimizer_, parameters_[v]);
      for (int slot = 0; slot < server::kMostSlots; ++slot) {
        if (!state.slots[slot].defined()) continue;
        cluster_->write_state(v, slot, values_of(on_host(state.slots[slot])), state.updates, spec);
      }
    }
  }
}

}  // namespace rondo
