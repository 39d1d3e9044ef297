#pragma once

#include <memory>
#include <span>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/backward_trace.h"
#include "rondo/parallel/ddp/comm_hook.h"
#include "rondo/parallel/ddp/gradient_weight.h"
#include "rondo/parallel/ddp/options.h"

namespace rondo {

// How the gradients of one model travel between ranks. GradientReducer decides which gradients and when; an
// exchange replaces each gradient by the sum over ranks of weight_r.scale * gradient_r. Parameters are
// numbered 0, 1, ... in the same way on all ranks, and every backward pass is: begin_backward; gradient_ready
// or gradient_missing once for every parameter; start_all; finish. One thread at a time calls it. Errors:
// CommunicationError as the engine throws it, or Error with the bucket named.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // Order in which gradients are expected, a permutation of all parameters and the same on all ranks. Not
  // during a backward pass.
  virtual void set_order(std::span<const std::size_t> order) = 0;

  virtual void begin_backward(const GradientWeight& weight) = 0;

  // The gradient of the parameter is complete. Starts whatever can be started and never waits.
  virtual void gradient_ready(std::size_t parameter) = 0;

  // The parameter got no gradient in this backward pass: what `.grad` holds from before, or zeros, is
  // contributed.
  virtual void gradient_missing(std::size_t parameter) = 0;

  // All parameters have been announced: starts every message that is left. Comes before any other collective
  // that the ranks run in the same backward pass, and before finish.
  virtual void start_all() = 0;

  // Waits until all gradients are synchronised and in `.grad`, except where `untouched` (one flag a
  // parameter; false for every gradient_ready) asks for `.grad` as it was.
  virtual void finish(const std::vector<bool>& untouched) = 0;

  // Ends a backward pass that failed half-way; leaves no operation running on this rank's memory.
  virtual void abandon() noexcept = 0;

  // The operations of the current or last backward pass, in order.
  virtual const std::vector<BucketTrace>& trace() const = 0;
};

// The fastest exchange that the group's engine allows; with a hook (one whose `run` is set) the bucketed one,
// in which the hook decides what travels.
std::unique_ptr<GradientExchange> make_gradient_exchange(const std::vector<ModelTensor>& parameters,
                                                         const Group& group, const DdpOptions& options,
                                                         CommHook hook = {});

}  // namespace rondo
