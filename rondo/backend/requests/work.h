#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "rondo/backend/requests/request_call.h"
#include "rondo/base/time.h"

namespace rondo {

// Several operations of one backend that were started together and are waited for together. Any thread.
class CoalescedWork final : public c10d::Work {
 public:
  using Parts = std::vector<c10::intrusive_ptr<c10d::Work>>;

  CoalescedWork(int rank, c10d::OpType type, Parts parts)
      : c10d::Work(rank, type), parts_(std::move(parts)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  // The first part's that has one.
  std::exception_ptr exception() const override;
  // `timeout` holds for all parts together.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void abort() override;
  // Results of all parts, in order.
  std::vector<at::Tensor> result() override;
  // Of the results of all parts, when the last one has ended; the error is the first one's that failed.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const Parts parts_;
};

// An operation that has ended when its call returns.
class EndedWork final : public c10d::Work {
 public:
  EndedWork(int rank, c10d::OpType type, std::vector<at::Tensor> results);
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<at::Tensor> results_;
};

// A collective that a thread of its engine carries out; waiting for it only waits. Any thread.
class BackgroundWork : public c10d::Work {
 public:
  // Keeps `memory` until the operation has ended.
  BackgroundWork(int rank, c10d::OpType type, std::shared_ptr<const OperationMemory> memory);

  // Called once, by the engine: copies results to where the caller wants them, and completes the future.
  void complete(std::exception_ptr error);

  bool wait(std::chrono::milliseconds timeout) override {
    return Work::wait(std::chrono::ceil<std::chrono::milliseconds>(bounded_duration(timeout)));
  }
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void abort() override {}

 private:
  std::vector<at::Tensor> results_;
  std::shared_ptr<const OperationMemory> memory_;  // until complete()
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// The only part itself, or all of them as one; nothing to wait for when there is none.
c10::intrusive_ptr<c10d::Work> coalesce(int rank, c10d::OpType type, CoalescedWork::Parts parts);

}  // namespace rondo
