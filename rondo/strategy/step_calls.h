#pragma once

#include "rondo/strategy/prepared_model.h"

namespace rondo {

// A checker of the order of calls in a prepared model's training step. Throws UsageError for a call out of
// order; the message names the missing call. Does not communicate. Used by one thread.
class StepCalls {
 public:
  // `has_gradients`: a backward pass has run since the last begin_step(). A pass that discards gradients is
  // valid between any two calls of a step and does not affect later calls.
  void begin_step(const LocalBatch& batch, bool has_gradients);
  void finish_backward();
  void clip_gradients() const;
  // Returns whether this is a repeated step() for the same gradients, as with a second optimizer.
  bool step();

  // Returns whether finish_backward() has combined gradients that no step() has used.
  bool gradients_wait() const { return stage_ == Stage::gradients; }
  // Returns whether a step() has used the gradients and no pass that produces others has begun.
  bool has_stepped() const { return stage_ == Stage::stepped; }

 private:
  enum class Stage {
    idle,       // before the first step
    pass,       // since begin_step()
    window,     // since finish_backward() of a pass that does not synchronise
    gradients,  // since finish_backward() of a synchronising pass
    stepped     // since step()
  };

  Stage stage_ = Stage::idle;
  bool synchronises_ = true;        // whether the present pass synchronises
  bool discards_ = false;           // whether the pass since begin_step() discards its gradients
  bool gradients_are_read_ = true;  // LocalBatch::gradients_are_read
};

// The error of totals() in a step without announce().
inline constexpr const char* kNothingAnnounced =
    "totals() was called without announce(): call announce() between the forward and the backward pass of "
    "the "
    "step, on all ranks";

// Throws UsageError for a batch with a negative number of samples.
void check_samples(const LocalBatch& batch);

}  // namespace rondo
