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

#include "rondo/backend/native/planned_collectives.h"
#include "rondo/backend/requests/request_call.h"
#include "rondo/collective/shared_memory/engine.h"
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

// A collective or message of the native engine, to look at and to wait for. It may be dropped at any time:
// the engine keeps what the operation needs, and ends it.
class NativeWork final : public c10d::Work {
 public:
  // What to wait for: the sequence number of a collective, its number among those that `plans` run, or a
  // message; none of them when all was done at once.
  struct Pending {
    std::shared_ptr<NativeOperation> operation;
    std::optional<std::uint64_t> sequence = {};
    std::shared_ptr<PlannedCollectives> plans = {};
    std::uint64_t planned = 0;
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
  // Of a receive, once it is complete where any rank may have sent.
  int sourceRank() const override;
  std::uint64_t getSequencenumber() const override { return pending_.sequence.value_or(0); }
  // Does not wait. Where it is a message's, whose Work alone has no deadline, the message now has one.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::shared_ptr<shared_memory::Engine> engine_;
  const Pending pending_;
};

}  // namespace rondo
