#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <deque>
#include <functional>
#include <optional>

#include "rondo/base/time.h"

namespace rondo {

// A bucket's gradients, or another block of communication, on its way: a message that is under way, what is
// to be done when it has arrived, and in the end a tensor.
//
// What c10::ivalue::Future is to PyTorch's communication hooks, with two differences. Nothing runs in the
// background: continuations run on the thread that drives the backward pass (a thread of the native
// engine, and Gloo's, would run user code beside autograd). And it is known which
// continuations send: those run in one order on all ranks, see CommunicationQueue, so that hooks of several
// rounds cannot meet each other's messages. A value, moved and never shared.
class BucketFuture {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;  // a message of an engine

  BucketFuture() = default;  // complete, with an undefined tensor
  // Complete, with this result. Implicit: a hook may just return a tensor.
  BucketFuture(at::Tensor result) : result_(std::move(result)) {}
  // Complete once the message is.
  BucketFuture(Work work, at::Tensor result = {}) : work_(std::move(work)), result_(std::move(result)) {}

  // Adds what computes the result from the one so far; it sends nothing.
  BucketFuture then(std::function<at::Tensor(at::Tensor)> compute) &&;
  // Adds a round: `send` gets the result so far, starts the next message, and gives what goes on from there.
  // The number of rounds must be the same on all ranks.
  BucketFuture then_send(std::function<BucketFuture(at::Tensor)> send) &&;

  // Whether the current message has arrived; errors count as arrived. Never waits, and may move it on.
  bool arrived();
  // The current message; null when it was waited for, or there is none.
  const Work& message() const { return work_; }
  // Whether a round is left to be started.
  bool has_round() const { return rounds_ > 0; }
  // Waits for the current message, then starts the next round. Requires has_round().
  void start_round();
  // Waits for everything, for each message as long as `timeout` or the engine's own says; the result. Throws
  // what an engine or a continuation throws, and std::runtime_error when a message was aborted.
  at::Tensor wait(std::optional<Duration> timeout = {});
  // Waits for the current message whatever its outcome, and drops the rest.
  void abandon() noexcept;

 private:
  struct Continuation {
    std::function<BucketFuture(at::Tensor)> run;
    bool sends = false;
  };

  void wait_for_message(std::optional<Duration> timeout = {});
  void run_next(std::optional<Duration> timeout = {});

  Work work_;  // null: arrived
  at::Tensor result_;
  std::deque<Continuation> continuations_;
  std::size_t rounds_ = 0;  // continuations that send
};

}  // namespace rondo
