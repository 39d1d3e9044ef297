#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "rondo/backend/native/scheduled_collectives.h"
#include "rondo/backend/requests/request_call.h"
#include "rondo/collective/shared_memory/engine.h"
#include "rondo/collective/shared_memory/owner.h"

namespace rondo {

// An operation of NativeBackend that the engine keeps until it has ended: its tensors, the copies of results
// to the caller's tensors, and the future, if requested. Any thread.
class NativeOperation final : public shared_memory::OperationOwner {
 public:
  using Memory = OperationMemory;
  explicit NativeOperation(Memory&& memory);

  void finish(const std::exception_ptr& error) noexcept override;
  void announce() noexcept override;

  // Returns whether finish() has completed; error() and results() are final from then on.
  bool over() const { return over_.load(std::memory_order_acquire); }
  std::exception_ptr error() const { return over() ? error_ : nullptr; }
  std::vector<at::Tensor> results() const { return memory_.list_of_results(); }
  // Returns a future of the results. The future completes when the operation ends, on the thread that ends
  // it.
  c10::intrusive_ptr<c10::ivalue::Future> future();
  // Declares that results() and future() are no longer called; the results are released as soon as the
  // operation has ended. The engine may keep the operation itself longer, until one of its threads announces
  // it.
  void forget_results() noexcept;

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  void complete(const Future& future) const;
  // All references to the results.
  struct Forgotten {
    Memory::Results results = {};
    Future future = {};
  };
  void settle(Forgotten& forgotten);
  void take_forgotten(Forgotten& forgotten);

  Memory memory_;  // announcing thread's until settled_; results then under mutex_
  const std::thread::id started_on_;
  std::exception_ptr error_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;  // protects the fields below
  bool announced_ = false;
  bool settled_ = false;    // the operation was announced, and the future, if any, is complete
  bool forgotten_ = false;  // forget_results() was called
  Future future_;
};

// A collective or message of the native engine that a caller can query and wait for. May be dropped at any
// time: the engine keeps the operation and ends it.
class NativeWork final : public c10d::Work {
 public:
  // The operation to wait for: the sequence number of a collective, its number among those that `schedules`
  // runs, or a message. None of them is set if the operation ended at once.
  struct Pending {
    std::shared_ptr<NativeOperation> operation;
    std::optional<std::uint64_t> sequence = {};
    std::shared_ptr<ScheduledCollectives> schedules = {};
    std::uint64_t scheduled = 0;
    std::shared_ptr<shared_memory::Message> message = {};
    Duration timeout{};
  };

  NativeWork(std::shared_ptr<shared_memory::Engine> engine, c10d::OpType type, Pending pending);
  ~NativeWork() override;
  NativeWork(const NativeWork&) = delete;
  NativeWork& operator=(const NativeWork&) = delete;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override { return pending_.operation->error(); }
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void abort() override;
  std::vector<at::Tensor> result() override { return pending_.operation->results(); }
  // Returns the sender of a receive once it is complete, for receives from any rank.
  int sourceRank() const override;
  std::uint64_t getSequencenumber() const override { return pending_.sequence.value_or(0); }
  // Returns the future without waiting. A message's Work has no deadline of its own; this call sets one.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::shared_ptr<shared_memory::Engine> engine_;
  const Pending pending_;
};

}  // namespace rondo
