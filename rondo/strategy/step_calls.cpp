#include "rondo/strategy/step_calls.h"

#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr const char* kOnlyWindow =
    "no backward pass of this step has combined gradients: make the last pass before step() outside of "
    "no_sync(), or set LocalBatch::synchronise = true in its begin_step()";

}  // namespace

void check_samples(const LocalBatch& batch) {
  if (batch.samples < 0)
    throw UsageError(
        str("begin_step: LocalBatch::samples is ", batch.samples, ", which is no number of samples"));
}

void StepCalls::begin_step(const LocalBatch& batch, bool has_gradients) {
  check_samples(batch);
  if (stage_ == Stage::pass && synchronises_ && has_gradients) {
    throw UsageError(
        "begin_step() was called after a backward pass without finish_backward(). Call finish_backward() and "
        "step(optimizer) after the backward pass; to add up gradients of several passes, set "
        "LocalBatch::synchronise = false in all but the last of them");
  }
  if (stage_ == Stage::gradients && !gradients_are_read_) {
    throw UsageError(
        "begin_step() was called before step() of the step before. Call prepared->step(optimizer) after "
        "finish_backward(), not optimizer.step(); to skip a step, set LocalBatch::gradients_are_read");
  }
  discards_ = batch.discard_gradients;
  if (discards_) {
    // An earlier pass without finish_backward() has ended: if it was to synchronise, it had no gradients.
    if (stage_ == Stage::pass) stage_ = synchronises_ ? Stage::idle : Stage::window;
    return;
  }
  stage_ = Stage::pass;
  synchronises_ = batch.synchronise;
  gradients_are_read_ = batch.gradients_are_read;
}

void StepCalls::finish_backward() {
  if (std::exchange(discards_, false)) return;
  if (stage_ != Stage::pass) {
    throw UsageError(
        "finish_backward() was called without begin_step(): call begin_step() before the forward pass, and "
        "finish_backward() once after the backward pass");
  }
  stage_ = synchronises_ ? Stage::gradients : Stage::window;
}

void StepCalls::clip_gradients() const {
  if (stage_ == Stage::window) throw UsageError(str("clip_gradients(): ", kOnlyWindow));
  if (stage_ != Stage::gradients) {
    throw UsageError(
        "clip_gradients() was called where no gradients are combined: call it between backward() and step()");
  }
}

bool StepCalls::step() {
  if (stage_ == Stage::window) throw UsageError(str("step(): ", kOnlyWindow));
  if (stage_ == Stage::idle) {
    throw UsageError(
        "step() was called without gradients: call forward(model, inputs), or begin_step() and the model, "
        "and "
        "backward() first");
  }
  const bool is_again = stage_ == Stage::stepped;
  if (is_again && !gradients_are_read_) {
    throw UsageError(
        "step() was called a second time after one backward pass. Make one optimizer with several "
        "parameter groups, or set LocalBatch::gradients_are_read, which keeps gradients for several "
        "optimizers");
  }
  stage_ = Stage::stepped;
  return is_again;
}

}  // namespace rondo
