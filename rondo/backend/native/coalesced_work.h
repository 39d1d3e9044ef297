#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

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

// The only part itself, or all of them as one; nothing to wait for when there is none.
c10::intrusive_ptr<c10d::Work> coalesce(int rank, c10d::OpType type, CoalescedWork::Parts parts);

}  // namespace rondo
