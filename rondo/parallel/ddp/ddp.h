#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/backward_trace.h"
#include "rondo/parallel/ddp/options.h"
#include "rondo/parallel/hooks/comm_hook.h"

namespace torch::optim {
class Optimizer;
}

namespace rondo {

class GradientReducer;

// A guard during whose lifetime backward passes accumulate gradients on this rank only. The first backward
// pass after it reduces the accumulated sum. Guards nest.
class [[nodiscard]] NoSync {
 public:
  ~NoSync();
  // The moved-from object has no effect.
  NoSync(NoSync&&) noexcept = default;
  NoSync& operator=(NoSync&&) = delete;

 private:
  friend class DistributedDataParallel;  // its no_sync() creates the guard
  explicit NoSync(std::shared_ptr<GradientReducer> reducer);

  std::shared_ptr<GradientReducer> reducer_;
};

// Data parallelism: every rank holds the whole model and computes on its own batch. Backward passes leave the
// averaged gradient in `.grad` on every rank, and overlap communication with computation. The model is not
// changed:
//
//   rondo::DistributedDataParallel ddp(*model, context.world());
//   for (auto& batch : *loader) {
//     optimizer.zero_grad();
//     auto loss = loss_function(ddp.forward(model, batch.data), batch.target);
//     loss.backward();   // on return gradients are synchronised
//     optimizer.step();
//   }
//
// Averaging rule: gradient = sum_r n_r g_r / sum_r n_r, where n_r is the argument of rank r's
// set_local_samples() for this step. Without set_local_samples() all ranks have the same weight. g_r is the
// sum that rank r accumulated in `.grad` since it was last cleared. Sparse gradients (Embedding and
// EmbeddingBag with sparse(true)) are exchanged by rows.
//
// All ranks of the group must wrap the same model and run synchronised backward passes in the same order. One
// thread uses an object. The object must outlive backward passes in progress, and keeps references to the
// model's tensors. On a group of one rank all functions are no-ops. docs/ddp.md has the complete rules.
class DistributedDataParallel {
 public:
  // Compares the model across ranks and copies rank 0's parameters and buffers to all ranks. Collective.
  // Parameters that do not require gradients now are never reduced; backward() throws UsageError naming one
  // that requires them later. Throws MismatchError on every rank, with the first parameter, buffer or option
  // that differs and both values. Throws UsageError if this rank is not in the group or no parameter requires
  // a gradient.
  DistributedDataParallel(const torch::nn::Module& model, const Group& group, const DdpOptions& options = {});
  // Like above, for a TorchScript module. It has no sparse gradients.
  DistributedDataParallel(const torch::jit::Module& model, const Group& group,
                          const DdpOptions& options = {});
  // Like above, for any parameters and buffers. `sparse` lists the parameters with sparse gradients, the same
  // on all ranks. For a module these are the weights of its layers with sparse(true).
  DistributedDataParallel(ModelTensors tensors, const Group& group, const DdpOptions& options = {},
                          const std::vector<at::Tensor>& sparse = {});
  ~DistributedDataParallel();
  // Leaves an object that may be destroyed or assigned to; all other calls throw UsageError.
  DistributedDataParallel(DistributedDataParallel&&) noexcept;
  DistributedDataParallel& operator=(DistributedDataParallel&&) noexcept;  // see the move constructor

  // Calls before_forward() and then the model's own forward. `model` is a module, a module holder or a
  // pointer to one. Throws UsageError if forward fails and an input is on another device than the model.
  template <class Model, class... Inputs>
  decltype(auto) forward(Model&& model, Inputs&&... inputs) {
    const std::initializer_list<std::optional<c10::Device>> devices = {device_of(inputs)...};
    before_forward();
    try {
      if constexpr (requires { model->forward(std::forward<Inputs>(inputs)...); }) {
        return model->forward(std::forward<Inputs>(inputs)...);
      } else {
        return model.forward(std::forward<Inputs>(inputs)...);
      }
    } catch (const c10::Error& error) {
      refuse_other_device(devices, error);
      throw;
    }
  }

  // Prepares a forward pass; call it before a forward pass that bypasses forward(). Collective inside
  // with_join, and if the model has buffers to broadcast: in the first forward pass and in each one after a
  // synchronised training pass, as in PyTorch.
  void before_forward();

  // Returns a guard during whose lifetime gradients stay local. Run forward and backward within it.
  NoSync no_sync();

  // Sets the number of samples that this rank's gradients are computed from in the next synchronised backward
  // pass. With gradient accumulation it is the sum over all its passes. May be 0. If any rank calls it for a
  // step, all ranks must, at the same place of the step. Call it before the forward pass, so that the
  // exchange overlaps with computation; inside with_join this is required. Throws UsageError if `samples` is
  // negative.
  void set_local_samples(std::int64_t samples);

  // Calls optimizer.step(closure) for an optimizer that evaluates the loss itself, such as LBFGS. `closure`
  // clears the gradients, runs one forward and backward pass and returns this rank's mean loss. The optimizer
  // and the caller get the mean over all ranks, weighted as the gradients are, so that all ranks make the
  // same decisions. Collective. Throws UsageError if the closure's backward pass does not synchronise, and
  // inside with_join.
  at::Tensor step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure);

  // Takes part in a backward pass of the other ranks without one on this rank. Contributes the content of
  // `.grad` (zeros if undefined) and receives the average. Call set_local_samples(0) before, if the other
  // ranks call it.
  void synchronize_without_backward();

  // Makes `hook` reduce the gradients (comm_hook.h; ready-made hooks are in hooks/). Collective; call it
  // once, before the first backward pass. With a hook the native engine reduces buckets instead of gradients
  // in place. Throws UsageError if called twice or too late, and MismatchError on every rank if the hooks'
  // names differ. On a group of one rank the hook is not used.
  void register_comm_hook(CommHook hook);

  // Returns a copy of the state that later backward passes depend on: the order in which gradients are
  // reduced, and the communication hook's state for this rank (error feedback, PowerSGD's matrices). Each
  // rank saves its own state. A run that loads it before the first backward pass continues bit for bit. That
  // requires a model with the same parameters, the same hook and the same number of ranks. Call it between
  // backward passes. Empty on a group of one rank.
  CommState communication_state() const;
  // Restores the result of communication_state() on this rank. Throws DataError for the state of another
  // model or hook. A part of the hook's state that does not fit a bucket is an error in the next backward
  // pass.
  void load_communication_state(const CommState& state);
  // Returns the reason why load_communication_state() would reject the state, as "is of ..."; empty if it
  // fits.
  std::string communication_incompatibility(const CommState& state) const;

  // Returns the times at which the buckets of the last synchronised backward pass were ready, launched and
  // finished. Valid until the next one.
  const BackwardTrace& last_backward() const;

  // Returns the group whose ranks train together.
  const Group& group() const;

  // Internal state, for join.cpp and strategies.
  struct State;
  State& state() const;  // returns the internal state

 private:
  template <class Input>
  static std::optional<c10::Device> device_of(const Input& input) {
    if constexpr (std::is_convertible_v<const Input&, const at::Tensor&>) {
      const at::Tensor& tensor = input;
      if (tensor.defined()) return tensor.device();
    }
    return {};
  }
  // Throws UsageError instead of `error` if an input is on another device than the model.
  void refuse_other_device(std::initializer_list<std::optional<c10::Device>> inputs,
                           const c10::Error& error) const;

  std::unique_ptr<State> state_;
};

}  // namespace rondo
