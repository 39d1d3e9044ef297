#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "rondo/backend/engine/dense_tensor.h"
#include "rondo/collective/shared_memory/owner.h"

namespace rondo {

// What the engine keeps of a NativeBackend's operation until it has ended: its tensors, the way of the
// results back to the caller's, and the future that somebody may have asked for. Any thread.
class NativeOperation final : public shared_memory::OperationOwner {
 public:
  struct Memory {
    std::vector<at::Tensor> alive = {};
    std::vector<DenseTensor> copied_back = {};
    std::vector<at::Tensor> results = {};
    // The future gives the results as one list of tensors, or as so many lists of equal length.
    std::size_t result_lists = 1;
  };
  explicit NativeOperation(Memory memory);

  void finish(const std::exception_ptr& error) noexcept override;
  void announce() noexcept override;

  // Whether finish() is through; from then on error() and results() are what they will be.
  bool over() const { return over_.load(std::memory_order_acquire); }
  std::exception_ptr error() const { return over() ? error_ : nullptr; }
  const std::vector<at::Tensor>& results() const { return memory_.results; }
  // Of the results; completes when the operation ends, on the thread that makes it end.
  c10::intrusive_ptr<c10::ivalue::Future> future();

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  void complete(const Future& future) const;

  Memory memory_;
  const std::thread::id started_on_;
  std::exception_ptr error_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;  // protects what follows
  bool announced_ = false;
  Future future_;
};

}  // namespace rondo
