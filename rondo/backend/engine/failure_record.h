#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <exception>
#include <string>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/time.h"

namespace rondo {

// Returns the text of a failure of libtorch's engine or store for use in a message: one line of ASCII without
// the stack and the source location.
std::string engine_reason(const std::exception& error);

// Silences libtorch's warnings and errors on standard error during its lifetime, on all threads of the
// process: c10d and Gloo print a C++ stack for each failure, which rondo reports itself. Does not change a
// level that the user sets with TORCH_CPP_LOG_LEVEL. Any thread; several objects may exist at a time.
class QuietLog {
 public:
  QuietLog();
  ~QuietLog();
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
};

// An engine that a caller can fail, with a failure noticed elsewhere.
class FailingEngine {
 public:
  virtual ~FailingEngine() = default;
  // Fails all waiting and later calls with `error` on this rank, and with its message on the peers. Any
  // thread; blocks for some seconds at most.
  virtual void fail(const std::exception_ptr& error) = 0;
};

// Fails the engine with `error`; aborts an engine that is not a FailingEngine.
inline void fail(c10d::Backend& engine, const std::exception_ptr& error) {
  if (auto* const failing = dynamic_cast<FailingEngine*>(&engine)) {
    failing->fail(error);
  } else {
    engine.abort();
  }
}

// An engine whose wait() returns before the results are available: the streams of a device wait for them. An
// operation may thus fail after its wait() has returned; the values of its tensors are then undefined.
class StreamOrderedEngine {
 public:
  virtual ~StreamOrderedEngine() = default;
  // Throws the engine's failure, if there has been one. After it has returned, values read from a device
  // earlier are results of successful operations. Any thread.
  virtual void throw_if_failed() = 0;
  // Returns whether a failure has ended an operation after its wait() had returned, so that device results
  // since then are invalid. Any thread.
  virtual bool has_lost_results() = 0;
};

// Throws the failure of a StreamOrderedEngine; does nothing for any other engine.
inline void throw_if_failed(c10d::Backend& engine) {
  if (auto* const ordered = dynamic_cast<StreamOrderedEngine*>(&engine)) ordered->throw_if_failed();
}

// Returns has_lost_results() of a StreamOrderedEngine, and false for any other engine.
inline bool has_lost_results(c10d::Backend& engine) {
  auto* const ordered = dynamic_cast<StreamOrderedEngine*>(&engine);
  return ordered != nullptr && ordered->has_lost_results();
}

// A record of the first failure of a group and of the first failure of its job, stored where all ranks can
// read them before any rank acts on them. A rank that sees a connection close, or a peer leave, finds out
// here whether that is the cause or a consequence of a failure in another group. Any thread. Never throws,
// and waits for the store for some seconds at most, because the store may be what failed. Copies share the
// record.
class FailureRecord {
 public:
  // `group` and `job` are stores that all ranks of the group, and of the job, share; either may be null.
  // `world_ranks` are the world ranks of the group's members; empty: the same as in the group. `limit` is the
  // longest wait for a store.
  FailureRecord(const c10::intrusive_ptr<c10d::Store>& group, const c10::intrusive_ptr<c10d::Store>& job,
                std::vector<int> world_ranks, Duration limit = std::chrono::seconds(5));

  // Returns the exception to report in place of `error`: another rank's failure if one came before, else
  // `error`. Its message names another group if that group failed first. An error that is not a
  // CommunicationError is not recorded as a failure of the job.
  std::exception_ptr first(const std::exception_ptr& error) noexcept;

 private:
  struct Failure {
    std::vector<int> ranks;  // the ranks at fault
    bool mismatch = false;   // ranks disagree, none is lost
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
