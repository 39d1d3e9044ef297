#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "rondo/base/time.h"

namespace rondo::hierarchical {

// A collective that a thread of the backend carries out; waiting for it only waits.
class BackgroundWork final : public c10d::Work {
 public:
  // `results` are what result() and the future give. `conclude` moves them to where the caller wants them; it
  // runs on the backend's thread, before the work counts as done.
  BackgroundWork(int rank, c10d::OpType type, std::vector<at::Tensor> results,
                 std::function<void()> conclude);

  // Called once, by the backend.
  void complete(std::exception_ptr error);

  bool wait(std::chrono::milliseconds timeout) override {
    return Work::wait(std::chrono::ceil<std::chrono::milliseconds>(bounded_duration(timeout)));
  }
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void abort() override {}

 private:
  std::vector<at::Tensor> results_;
  std::function<void()> conclude_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace rondo::hierarchical
