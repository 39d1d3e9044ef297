#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/base/time.h"
#include "rondo/strategy/model_parts.h"

namespace rondo {

// What a strategy is told before a forward pass.
struct LocalBatch {
  // Samples behind the gradients that will lie in `.grad` after this backward pass: this rank's batch, or
  // with gradient accumulation the whole window. 0 when this rank has run out of data and computes on a
  // stand-in. The combined gradient is the mean over all samples of all ranks, that is sum(samples *
  // gradient) / sum(samples).
  std::int64_t samples = 1;
  // False for all but the last micro-batch of an accumulation window: gradients stay local (DDP's no_sync).
  bool synchronise = true;
  // Someone looks at the gradients between the backward pass and the optimizer's step: clipping, a gradient
  // scaler, a user's own loop. False lets a strategy combine gradients later than finish_backward(), under
  // the next forward pass, and leave the optimizer's work until then.
  bool gradients_are_read = true;
};

// Where the last synchronised step spent its time on communication.
struct CommunicationTimes {
  Duration busy{};     // moving and reducing data, overlapped with computation or not
  Duration exposed{};  // computation stood still for it
};

// One operation of the last synchronised step, in monotonic_ns() (base/time.h).
struct CommunicationSpan {
  std::string operation = {};  // "all_reduce"
  std::string unit = {};       // whose parameters or gradients; empty: of several
  std::int64_t bucket = -1;    // which bucket of gradients, or block of the unit; -1 when it is not one
  Bytes bytes = {};
  std::int64_t queued_ns = 0;  // it was ready to go
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  // Computation stood still for it: when first, and for how long altogether.
  std::int64_t waited_ns = 0;
  std::int64_t exposed_ns = 0;
};

// What communication on one rank remembers from step to step, by name; differs by rank.
using CommunicationState = std::map<std::string, at::Tensor>;

// A module made ready for training by a strategy. A training step is:
//   prepared.begin_step(batch); loss = forward(...); loss.backward(); prepared.finish_backward();
//   prepared.clip_gradients(norm); prepared.step(optimizer);
// All ranks make the same calls; one thread uses an object.
class PreparedModel {
 public:
  virtual ~PreparedModel() = default;

  // What to make an optimizer of: the user's own module, or one that has, under the same names, the parts of
  // its parameters that this rank optimises.
  virtual torch::nn::Module& module() = 0;
  virtual void begin_step(const LocalBatch& batch) = 0;
  // Blocks until gradients are combined over all replicas (unless the step does not synchronise).
  // Throws CommunicationError naming the ranks that are missing.
  virtual void finish_backward() = 0;
  // Scales all gradients of the model down to the L2 norm `max_norm` over all its parameters, wherever their
  // parts are, and returns the norm before. After finish_backward() of a step that synchronises. Collective.
  virtual double clip_gradients(double max_norm);
  // The optimizer's step; some strategies do part of it later. `optimizer` was made of module().
  virtual void step(torch::optim::Optimizer& optimizer) { optimizer.step(); }
  // Between what module() has on the ranks and the whole model: for evaluation, saving and loading.
  virtual ModelParts& parts() = 0;
  void make_whole() { parts().make_whole(); }
  // What a run needs besides weights and optimizer to go on bit for bit: what a codec has left out of this
  // rank's gradients so far, the order in which gradients travel. Copies, between steps. Empty where there is
  // nothing of the kind.
  virtual CommunicationState communication_state() const { return {}; }
  // Goes on from what communication_state() gave on all ranks, in rank order; before the first step, on every
  // rank with the same. Where it is of another codec or number of ranks it is not used, and what has been
  // left out is lost: the result says so and why, for a log; otherwise it is empty. Does not communicate.
  virtual std::string restore_communication(const std::vector<CommunicationState>& /*of_ranks*/) {
    return {};
  }
  // Around the model's own forward, under a mixed precision policy: what it is to be given, and what its
  // output becomes. Units cast their own inputs and outputs; these are for the model as a whole.
  virtual at::Tensor cast_input(const at::Tensor& input) const { return input; }
  virtual at::Tensor cast_output(const at::Tensor& output) const { return output; }
  virtual CommunicationTimes communication_times() const = 0;
  // Empty when nothing was communicated. Only called for the few steps that are traced.
  virtual std::vector<CommunicationSpan> communication_spans() const { return {}; }
};

}  // namespace rondo
