#pragma once

#include "rondo/strategy/prepared_model.h"

namespace rondo {

// The calls of a training step that a prepared model has seen. Throws UsageError for one that is out of
// order; the message names the call that is missing. Communicates nothing. One thread.
class StepCalls {
 public:
  // `has_gradients`: a backward pass has run since the last begin_step(). A pass that discards gradients may
  // come between any two calls of a step, and changes nothing for those that follow.
  void begin_step(const LocalBatch& batch, bool has_gradients);
  void finish_backward();
  void clip_gradients() const;
  // Returns whether it is another step() for the same gradients, as with a second optimizer.
  bool step();

  // Whether finish_backward() has combined gradients that no step() has used.
  bool gradients_wait() const { return stage_ == Stage::gradients; }
  // Whether a step() has used them, and no pass that gives others has begun since.
  bool has_stepped() const { return stage_ == Stage::stepped; }

 private:
  enum class Stage {
    idle,       // before the first step
    pass,       // since begin_step()
    window,     // since finish_backward() of a pass that does not synchronise
    gradients,  // since finish_backward() of one that does
    stepped     // since step()
  };

  Stage stage_ = Stage::idle;
  bool synchronises_ = true;        // the pass
  bool discards_ = false;           // the pass since the last begin_step()
  bool gradients_are_read_ = true;  // LocalBatch's
};

// The error of totals() in a step without announce().
inline constexpr const char* kNothingAnnounced =
    "totals() was called without announce(): call announce() between the forward and the backward pass of "
    "the "
    "step, on all ranks";

// Throws UsageError for a batch whose number of samples is none.
void check_samples(const LocalBatch& batch);

}  // namespace rondo
