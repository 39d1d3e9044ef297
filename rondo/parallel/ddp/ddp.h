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

// While one lives, backward passes accumulate gradients on this rank only; the first backward pass after it
// reduces the accumulated sum. Guards nest.
class [[nodiscard]] NoSync {
 public:
  ~NoSync();
  // The moved-from object does nothing any more.
  NoSync(NoSync&&) noexcept = default;
  NoSync& operator=(NoSync&&) = delete;

 private:
  friend class DistributedDataParallel;  // no_sync() makes it
  explicit NoSync(std::shared_ptr<GradientReducer> reducer);

  std::shared_ptr<GradientReducer> reducer_;
};

// Data parallelism: every rank holds the whole model and computes on its own batch; backward passes leave the
// averaged gradient in `.grad` on every rank, overlapping communication with computation. The model is not
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
// Averaging rule: gradient = sum_r n_r g_r / sum_r n_r, where n_r is what rank r gave to set_local_samples
// for this step; without it all ranks weigh the same. g_r is what rank r accumulated in `.grad` since it was
// last cleared. Sparse gradients (Embedding and EmbeddingBag with sparse(true)) travel by rows.
//
// All ranks of the group must wrap the same model and run synchronised backward passes in the same order. One
// thread uses an object; it must outlive backward passes in progress, and the model's tensors outlive it or
// not as they like. On a group of one rank everything here is a no-op. docs/ddp.md tells the rules in full.
class DistributedDataParallel {
 public:
  // Collective. Compares the model across ranks and gives all of them rank 0's parameters and buffers.
  // Parameters that do not require gradients now are never reduced; backward() throws UsageError naming one
  // that does later. Throws MismatchError on every rank naming
  // the first parameter, buffer or option that differs and both sides; UsageError when this rank is not in
  // the group or nothing requires a gradient.
  DistributedDataParallel(const torch::nn::Module& model, const Group& group, const DdpOptions& options = {});
  // Of a TorchScript module.
  DistributedDataParallel(const torch::jit::Module& model, const Group& group,
                          const DdpOptions& options = {});
  // Of any parameters and buffers. `sparse` are the parameters whose gradients are sparse, the same on all
  // ranks: of a module those of its layers with sparse(true), of a TorchScript module none.
  DistributedDataParallel(ModelTensors tensors, const Group& group, const DdpOptions& options = {},
                          const std::vector<at::Tensor>& sparse = {});
  ~DistributedDataParallel();
  // The moved-from object may be destroyed or assigned to; every other call throws UsageError.
  DistributedDataParallel(DistributedDataParallel&&) noexcept;
  DistributedDataParallel& operator=(DistributedDataParallel&&) noexcept;  // likewise

  // before_forward() and then the model's own forward. `model` is a module, a module holder or a pointer to
  // one. Throws UsageError where that fails and an input is on another device than the model.
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

  // For who calls the model directly: collective where the model has buffers to broadcast (the first forward
  // pass and each one after a synchronised training pass, as in PyTorch) and inside with_join.
  void before_forward();

  // Gradients stay local while the result lives. Put forward and backward inside it.
  NoSync no_sync();

  // Samples behind this rank's gradients in the next synchronised backward pass; for gradient accumulation
  // those of all its passes. May be 0. If any rank calls it for a step all must, at the same place of the
  // step. Best before the forward pass, so that the numbers travel while it computes; inside with_join it
  // must be there.
  void set_local_samples(std::int64_t samples);

  // As optimizer.step(closure), for an optimizer that evaluates the loss itself, such as LBFGS. `closure`
  // clears the gradients, makes one forward and backward pass and returns this rank's mean loss. The
  // optimizer is given the mean over all ranks, weighted as the gradients are, and so is the caller. All
  // ranks then decide alike; optimizer.step(closure) would have each decide by its own loss. Collective.
  // Throws UsageError for a closure whose backward pass does not synchronise, and inside with_join.
  at::Tensor step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure);

  // For a rank that has nothing to do a backward pass on while the others do one: contributes what `.grad`
  // holds (zeros if undefined) and receives the average. Call set_local_samples(0) before, as the others call
  // it with their numbers.
  void synchronize_without_backward();

  // Hands the gradients' communication to `hook` (comm_hook.h; ready-made ones in hooks/). Collective, before
  // the first backward pass, once. The native engine's reduction in place gives way to buckets. Throws
  // UsageError when called a second time or too late, MismatchError on every rank when ranks give hooks of
  // different names. On a group of one rank gradients stay as they are.
  void register_comm_hook(CommHook hook);

  // What later backward passes need to know of the earlier ones: the order in which gradients travel, and
  // what the communication hook remembers of this rank's gradients (error feedback, PowerSGD's matrices).
  // Each rank saves its own. Loaded before the first backward pass of a model with the same parameters and
  // hook on as many ranks, a run goes on bit for bit as if it had not been interrupted. Copies; between
  // backward passes. Empty on a group of one rank. Throws DataError when the state is of another model or
  // hook; a part of the state that does not fit a bucket is found in the next backward pass.
  CommState communication_state() const;
  // Goes on from what communication_state() gave on this rank; throws DataError where it does not fit.
  void load_communication_state(const CommState& state);
  // Why load_communication_state would refuse a state, as "is of ..."; empty when it fits.
  std::string communication_incompatibility(const CommState& state) const;

  // When the buckets of the last synchronised backward pass were ready, launched and finished. Valid until
  // the next.
  const BackwardTrace& last_backward() const;

  const Group& group() const;  // whose ranks train together

  // For the implementation (join.cpp).
  struct State;
  State& state() const;  // what joins and strategies work with

 private:
  template <class Input>
  static std::optional<c10::Device> device_of(const Input& input) {
    if constexpr (std::is_convertible_v<const Input&, const at::Tensor&>) {
      const at::Tensor& tensor = input;
      if (tensor.defined()) return tensor.device();
    }
    return {};
  }
  // Throws UsageError in place of `error` where an input is on another device than the model.
  void refuse_other_device(std::initializer_list<std::optional<c10::Device>> inputs,
                           const c10::Error& error) const;

  std::unique_ptr<State> state_;
};

}  // namespace rondo
