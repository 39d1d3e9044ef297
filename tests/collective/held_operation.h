#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/collective/shared_memory/engine.h"

namespace rondo::shared_memory {

// Buffers of one operation that live as long as the engine holds them, and its outcome.
class Held : public OperationOwner {
 public:
  Held(std::size_t input_bytes, std::size_t output_bytes) : input_(input_bytes), output_(output_bytes) {}

  void finish(const std::exception_ptr& error) noexcept override {
    finished = true;
    error_ = error;
  }
  void announce() noexcept override {
    EXPECT_TRUE(finished);
    if (then) then();
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(ended_) << "announced twice";
    ended_ = true;
    changed_.notify_all();
  }

  // Waits without using the engine.
  bool wait(Duration limit = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return ended_; });
  }
  std::exception_ptr error() const { return error_; }
  std::byte* input() { return input_.data(); }
  std::byte* output() { return output_.data(); }

  std::function<void()> then;
  bool finished = false;

 private:
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
};

// Starts `kind` on bytes that all equal the rank + 1; only the engine keeps them.
inline std::shared_ptr<Held> start(Engine& engine, OperationKind kind, std::size_t bytes,
                                   Deadline deadline = Deadline::never()) {
  const auto ranks = static_cast<std::size_t>(engine.size());
  auto held = std::make_shared<Held>(bytes * ranks, bytes * ranks);
  std::memset(held->input(), engine.rank() + 1, bytes * ranks);
  CollectiveRequest request{.kind = kind, .type = DType::uint8, .elements = bytes};
  request.input = {held->input(), bytes, {}};
  request.output = {held->output(), bytes, {}};
  if (kind == OperationKind::all_reduce || kind == OperationKind::broadcast || kind == OperationKind::reduce)
    request.output = request.input;
  engine.start(std::move(request), held, deadline);
  return held;
}

}  // namespace rondo::shared_memory
