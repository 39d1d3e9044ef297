#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <deque>
#include <functional>
#include <optional>

#include "rondo/base/time.h"

namespace rondo {

// A bucket's gradients, or another segment of communication, in flight: a message, continuations that run
// after it, and in the end a tensor.
//
// The counterpart of c10::ivalue::Future in PyTorch's communication hooks, with two differences. Nothing runs
// in the background: continuations run on the thread that drives the backward pass, because a thread of the
// engine would run user code concurrently with autograd. Continuations that send are marked: they run in one
// order on all ranks (see CommunicationQueue), so that messages of hooks with several rounds cannot be mixed
// up. Movable, not copied.
class BucketFuture {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;  // a message of an engine

  // Makes a complete future with an undefined tensor.
  BucketFuture() = default;
  // Makes a complete future with this result. Implicit, so that a hook can return a tensor.
  BucketFuture(at::Tensor result) : result_(std::move(result)) {}
  // Makes a future that completes when the message does.
  BucketFuture(Work work, at::Tensor result = {}) : work_(std::move(work)), result_(std::move(result)) {}

  // Adds a continuation that computes the result from the previous one, without sending.
  BucketFuture then(std::function<at::Tensor(at::Tensor)> compute) &&;
  // Adds a round: `send` gets the previous result, starts the next message, and returns its future. The
  // number of rounds must be the same on all ranks.
  BucketFuture then_send(std::function<BucketFuture(at::Tensor)> send) &&;

  // Returns true if the current message has completed, successfully or not. Does not block, but may let the
  // engine make progress.
  bool arrived();
  // Returns the current message; null if it was waited for, or if there is none.
  const Work& message() const { return work_; }
  // Returns true if a round is not started yet.
  bool has_round() const { return rounds_ > 0; }
  // Waits for the current message, with the timeout of wait(), then starts the next round. Requires
  // has_round().
  void start_round(std::optional<Duration> timeout = {});
  // Blocks until all messages and continuations are complete and returns the result. Waits for each message
  // up to `timeout`, or the engine's default. Rethrows exceptions of the engine and of continuations. Throws
  // std::runtime_error if a message was aborted.
  at::Tensor wait(std::optional<Duration> timeout = {});
  // Blocks until the current message has ended, successfully or not, and drops the continuations.
  void abandon() noexcept;

 private:
  struct Continuation {
    std::function<BucketFuture(at::Tensor)> run;
    bool sends = false;
  };

  void wait_for_message(std::optional<Duration> timeout = {});
  void run_next(std::optional<Duration> timeout = {});

  Work work_;  // null if the message has completed
  at::Tensor result_;
  std::deque<Continuation> continuations_;
  std::size_t rounds_ = 0;  // number of continuations that send
};

}  // namespace rondo
