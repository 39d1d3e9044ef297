#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <exception>
#include <string>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/time.h"

namespace rondo {

// Returns the text of a failure of libtorch's engine or store as a part of a message: one line of ASCII
// without the stack and the place in its source.
std::string engine_reason(const std::exception& error);

// Keeps libtorch's warnings and errors off standard error while one lives, on all threads of the process:
// c10d and Gloo write a C++ stack there for each failure, which rondo reports in words of its own. A level
// that the user sets with TORCH_CPP_LOG_LEVEL stays. Any thread; several may live at a time.
class QuietLog {
 public:
  QuietLog();
  ~QuietLog();
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
};

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

// The first failure of a group and the first of its job, written where all ranks can read them before anybody
// acts on them: a rank that sees a connection close, or a rank leave, asks here whether that is the cause or
// a consequence of what happened in another group. Any thread. Never throws, and waits for the store some
// seconds at most: the store may be what failed. A copy is the same record.
class FailureRecord {
 public:
  // `group` and `job` are stores that all ranks of the group, and of the job, share; either may be null.
  // `world_ranks` are those of the group's members; empty: the same as in the group. `limit` is the longest
  // wait for a store.
  FailureRecord(const c10::intrusive_ptr<c10d::Store>& group, const c10::intrusive_ptr<c10d::Store>& job,
                std::vector<int> world_ranks, Duration limit = std::chrono::seconds(5));

  // Returns the exception to report in place of `error`: another rank's failure if one came before, else
  // `error`. It names another group where the failure is that group's. An error that is no
  // CommunicationError is no failure of the job.
  std::exception_ptr first(const std::exception_ptr& error) noexcept;

 private:
  struct Failure {
    std::vector<int> ranks;  // to blame
    bool mismatch = false;   // ranks disagree, nobody is lost
    std::string what;
  };
  static Failure record(c10d::Store& store, const Failure& failure);
  std::exception_ptr first_of_job(const std::exception_ptr& error,
                                  const CommunicationError& failure) noexcept;

  c10::intrusive_ptr<c10d::Store> group_;
  c10::intrusive_ptr<c10d::Store> job_;
  std::vector<int> world_ranks_;
};

}  // namespace rondo
