#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "rondo/backend/requests/request_call.h"
#include "rondo/collective/shared_memory/owner.h"

namespace rondo {

// What the engine keeps of a NativeBackend's operation until it has ended: its tensors, the way of the
// results back to the caller's, and the future that somebody may have asked for. Any thread.
class NativeOperation final : public shared_memory::OperationOwner {
 public:
  using Memory = OperationMemory;
  explicit NativeOperation(Memory&& memory);

  void finish(const std::exception_ptr& error) noexcept override;
  void announce() noexcept override;

  // Whether finish() is through; from then on error() and results() are what they will be.
  bool over() const { return over_.load(std::memory_order_acquire); }
  std::exception_ptr error() const { return over() ? error_ : nullptr; }
  std::vector<at::Tensor> results() const { return memory_.list_of_results(); }
  // Of the results; completes when the operation ends, on the thread that makes it end.
  c10::intrusive_ptr<c10::ivalue::Future> future();
  // Nobody calls results() or future() any more: lets go of the results as soon as the operation has ended.
  // The engine may keep the operation for longer, until one of its threads finds the time to announce it.
  void forget_results() noexcept;

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  void complete(const Future& future) const;
  // All that has the results.
  struct Forgotten {
    Memory::Results results = {};
    Future future = {};
  };
  void settle(Forgotten& forgotten);
  void take_forgotten(Forgotten& forgotten);

  Memory memory_;  // until settled_ the announcing thread's, then mutex_ protects the results
  const std::thread::id started_on_;
  std::exception_ptr error_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;  // protects what follows
  bool announced_ = false;
  bool settled_ = false;    // announced, and the future is complete where there was one
  bool forgotten_ = false;  // by forget_results()
  Future future_;
};

}  // namespace rondo
