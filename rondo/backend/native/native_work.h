#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <optional>

#include "rondo/collective/shared_memory/engine.h"

namespace rondo {

// A collective or message of the native engine under way. It keeps the tensors alive, and moves results to
// where the caller wants them (`finish`) once the engine is done: in wait(), or when isCompleted() first says
// yes.
class NativeWork final : public c10d::Work {
 public:
  struct Pending {
    // What to wait for: the sequence number of the last collective, or a message; neither when all is done.
    std::optional<std::uint64_t> sequence;
    std::shared_ptr<shared_memory::Message> message;
    bool is_send = false;
    std::vector<at::Tensor> alive;
    std::vector<at::Tensor> results;
    std::function<void()> finish;
    Duration timeout{};
    int source_rank = -1;
  };

  NativeWork(std::shared_ptr<shared_memory::Engine> engine, c10d::OpType type, Pending pending);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void abort() override;
  std::vector<at::Tensor> result() override;
  int sourceRank() const override { return pending_.source_rank; }
  std::uint64_t getSequencenumber() const override { return pending_.sequence.value_or(0); }
  // Completes the work first: nothing runs in the background that could complete the future later.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  bool engine_done();
  void conclude();

  std::shared_ptr<shared_memory::Engine> engine_;
  mutable std::mutex work_mutex_;  // protects done_, error_ and pending_.finish
  bool done_ = false;
  std::exception_ptr error_;
  Pending pending_;
};

}  // namespace rondo
