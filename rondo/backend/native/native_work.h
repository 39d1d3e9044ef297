#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <optional>

#include "rondo/backend/native/native_operation.h"
#include "rondo/backend/native/planned_collectives.h"
#include "rondo/collective/shared_memory/engine.h"

namespace rondo {

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
