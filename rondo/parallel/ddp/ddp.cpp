#include "rondo/parallel/ddp/ddp.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/ddp_state.h"
#include "rondo/parallel/gradients/model_agreement.h"
#include "rondo/strategy/mean_loss.h"

namespace rondo {
namespace {

std::vector<at::Tensor> sparse_weights(const torch::nn::Module& model) {
  std::vector<at::Tensor> weights;
  for (SparseLayer& layer : sparse_layers(model)) weights.push_back(std::move(layer.weight));
  return weights;
}

// Returns the options that must be equal on all ranks, one line per option.
std::vector<std::string> option_lines(const DdpOptions& options) {
  const auto size = [](const std::optional<Bytes>& bytes) { return bytes ? to_string(*bytes) : "default"; };
  std::vector<std::string> lines = {"strategy = ddp",
                                    str("bucket_bytes = ", size(options.bucket_bytes)),
                                    str("first_bucket_bytes = ", size(options.first_bucket_bytes)),
                                    str("find_unused_parameters = ", options.find_unused_parameters),
                                    str("static_graph = ", options.static_graph),
                                    str("broadcast_buffers = ", options.broadcast_buffers),
                                    str("check_parameters_every = ", options.check_parameters_every)};
  for (const std::string& name : options.ignored) lines.push_back(str("ignored '", name, "'"));
  return lines;
}

bool is_one_of(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& each) { return each.is_same(tensor); });
}

}  // namespace

NoSync::NoSync(std::shared_ptr<GradientReducer> reducer) : reducer_(std::move(reducer)) {
  if (reducer_) reducer_->change_no_sync_depth(+1);
}

NoSync::~NoSync() {
  if (reducer_) reducer_->change_no_sync_depth(-1);
}

DistributedDataParallel::DistributedDataParallel(const torch::nn::Module& model, const Group& group,
                                                 const DdpOptions& options)
    : DistributedDataParallel(tensors_of(model), group, options, sparse_weights(model)) {}

DistributedDataParallel::DistributedDataParallel(const torch::jit::Module& model, const Group& group,
                                                 const DdpOptions& options)
    : DistributedDataParallel(tensors_of(model), group, options) {}

DistributedDataParallel::DistributedDataParallel(ModelTensors tensors, const Group& group,
                                                 const DdpOptions& options,
                                                 const std::vector<at::Tensor>& sparse)
    : state_(new State{without_ignored(without_repetitions(std::move(tensors)), options.ignored), group,
                       options, nullptr, nullptr}) {
  if (!group.member()) throw UsageError("DistributedDataParallel was given a group that this rank is not in");
  std::vector<ModelTensor> dense, by_rows, frozen;
  for (const ModelTensor& parameter : state_->tensors.parameters) {
    if (!parameter.tensor.requires_grad()) {
      frozen.push_back(parameter);
      continue;
    }
    (is_one_of(sparse, parameter.tensor) ? by_rows : dense).push_back(parameter);
  }
  if (dense.empty() && by_rows.empty())
    throw UsageError("DistributedDataParallel: no parameter of the model requires a gradient");
  if (group.size() == 1) return;
  verify_same_model(state_->tensors, option_lines(options), group, by_rows);
  broadcast_coalesced(state_->tensors.all_tensors(), group, /*root=*/0);
  state_->announcement = std::make_shared<StepAnnouncement>(group);
  state_->reducer = std::make_shared<GradientReducer>(std::move(dense), std::move(by_rows), std::move(frozen),
                                                      group, options, state_->announcement);
}

DistributedDataParallel::~DistributedDataParallel() = default;
DistributedDataParallel::DistributedDataParallel(DistributedDataParallel&&) noexcept = default;
DistributedDataParallel& DistributedDataParallel::operator=(DistributedDataParallel&&) noexcept = default;

void DistributedDataParallel::refuse_other_device(std::initializer_list<std::optional<c10::Device>> inputs,
                                                  const c10::Error& error) const {
  const std::vector<ModelTensor>& parameters = state().tensors.parameters;
  if (parameters.empty()) return;
  const c10::Device device = parameters.front().tensor.device();
  for (const std::optional<c10::Device>& input : inputs) {
    if (!input || *input == device) continue;
    throw UsageError(str("an input is on ", input->str(), " and the model on ", device.str(),
                         "; move the batch to the model's device: input.to(device) (",
                         error.what_without_backtrace(), ")"));
  }
}

void DistributedDataParallel::before_forward() {
  State& state = this->state();
  if (!state.reducer) return;
  const bool synchronises = state.reducer->synchronises() && at::GradMode::is_enabled();
  const bool broadcasts =
      state.buffers_due && state.options.broadcast_buffers && !state.tensors.buffers.empty();
  int source = 0;
  if (state.join) {
    state.announcement->start({.synchronises = synchronises,
                               .broadcasts_buffers = broadcasts,
                               .samples = std::exchange(state.samples, std::nullopt)});
    if (state.join->throw_on_early_termination) throw_if_a_rank_has_ended(*state.announcement);
    // Rank 0 may have run out of batches, and then has no up-to-date statistics.
    if (broadcasts) {
      state.announcement->ranks();
      source = state.announcement->last_active().front();
    }
  }
  if (broadcasts) broadcast_coalesced(state.tensors.buffer_tensors(), state.group, source);
  state.buffers_due = synchronises;
}

DistributedDataParallel::State& DistributedDataParallel::state() const {
  if (state_ == nullptr)
    throw UsageError("this DistributedDataParallel was moved from; use the object that it was moved to");
  return *state_;
}

NoSync DistributedDataParallel::no_sync() { return NoSync(state().reducer); }

void DistributedDataParallel::set_local_samples(std::int64_t samples) {
  if (samples < 0) throw UsageError(str("set_local_samples: ", samples, " is not a number of samples"));
  if (!state().reducer) return;
  if (state().join) {
    state().samples = samples;
  } else {
    state().announcement->start({.samples = samples});
  }
}

at::Tensor DistributedDataParallel::step(torch::optim::Optimizer& optimizer,
                                         const std::function<at::Tensor()>& closure) {
  if (state_->join) {
    throw UsageError(
        "ddp.step(optimizer, closure) was called inside with_join: how often the optimizer evaluates the "
        "closure "
        "is not known to ranks that have run out of data. Give all ranks the same number of batches");
  }
  return optimizer.step([&] {
    GradientReducer* const reducer = state_->reducer.get();
    const long long passes = reducer != nullptr ? reducer->synchronised_passes() : 0;
    const at::Tensor loss = closure().detach();
    if (reducer == nullptr) return loss;
    if (reducer->synchronised_passes() == passes) {
      throw UsageError(
          "ddp.step(optimizer, closure): the closure made no backward pass that combines gradients; call "
          "loss.backward() in it, outside of no_sync()");
    }
    return mean_over_ranks(loss, reducer->last_weight().scale, state_->group);
  });
}

void DistributedDataParallel::synchronize_without_backward() {
  if (state().reducer) state().reducer->synchronize_without_backward();
}

void DistributedDataParallel::register_comm_hook(CommHook hook) {
  State& state = this->state();
  if (!hook.run) throw UsageError(str("communication hook '", hook.name, "' has no function to run"));
  if (!state.reducer) return;
  state.reducer->set_comm_hook(std::move(hook));
}

CommState DistributedDataParallel::communication_state() const {
  return state().reducer ? state().reducer->communication_state() : CommState();
}

void DistributedDataParallel::load_communication_state(const CommState& state) {
  if (this->state().reducer) this->state().reducer->load_communication_state(state);
}

std::string DistributedDataParallel::communication_incompatibility(const CommState& state) const {
  const auto& reducer = this->state().reducer;
  return reducer ? reducer->communication_incompatibility(state) : std::string();
}

const BackwardTrace& DistributedDataParallel::last_backward() const {
  return state().reducer ? state().reducer->last_backward() : state().no_trace;
}

const Group& DistributedDataParallel::group() const { return state().group; }

std::string restore_communication(DistributedDataParallel& ddp, const std::vector<CommState>& of_ranks) {
  return restore_own_state(of_ranks, ddp.group().rank(), ddp.group().size(), [&](const CommState& own) {
    std::string incompatibility = ddp.communication_incompatibility(own);
    if (incompatibility.empty()) ddp.load_communication_state(own);
    return incompatibility;
  });
}

}  // namespace rondo
