#pragma once

#include <exception>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace rondo {

// An engine that can be told of a failure which somebody else has noticed.
class FailingEngine {
 public:
  virtual ~FailingEngine() = default;
  // Makes all waiting and later calls fail with `error`, here and, in the words that describe it, on the
  // peers. Any thread; blocks for some seconds at most.
  virtual void fail(const std::exception_ptr& error) = 0;
};

// Fails the engine with `error`; one that cannot be told is aborted.
inline void fail(c10d::Backend& engine, const std::exception_ptr& error) {
  if (auto* const failing = dynamic_cast<FailingEngine*>(&engine)) {
    failing->fail(error);
  } else {
    engine.abort();
  }
}

// An engine whose wait() returns before the results are there: the streams of a device wait for them. A
// failure then ends operations after their wait() has returned, and their tensors have undefined values.
class StreamOrderedEngine {
 public:
  virtual ~StreamOrderedEngine() = default;
  // Throws the engine's failure, if there has been one. A value that was read from a device before this
  // returns is of operations that have ended well. Any thread.
  virtual void throw_if_failed() = 0;
  // Whether a failure has ended an operation after its wait() had returned, so that nothing that was computed
  // on the device since is of use. Any thread.
  virtual bool has_lost_results() = 0;
};

// Throws the failure of an engine of that kind; does nothing for any other engine.
inline void throw_if_failed(c10d::Backend& engine) {
  if (auto* const ordered = dynamic_cast<StreamOrderedEngine*>(&engine)) ordered->throw_if_failed();
}

// Returns false for an engine of any other kind.
inline bool has_lost_results(c10d::Backend& engine) {
  auto* const ordered = dynamic_cast<StreamOrderedEngine*>(&engine);
  return ordered != nullptr && ordered->has_lost_results();
}

}  // namespace rondo
