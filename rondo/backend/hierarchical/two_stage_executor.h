#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "rondo/backend/hierarchical/transports.h"

namespace rondo::hierarchical {

// A description of a collective that ranks of different hosts compare before they use each other's data. Sent
// as raw bytes.
struct OperationHeader {
  std::uint64_t sequence = 0;
  std::uint64_t elements = 0;
  std::int32_t root = 0;
  OperationKind kind = OperationKind::barrier;
  DType type = DType::uint8;
  Reduction reduction = Reduction::sum;
  std::uint8_t compressed : 1 = 0;
  std::uint8_t call : 7 = 0;  // a CollectiveCall

  // Returns whether two ranks run the same collective.
  friend bool agree(const OperationHeader& a, const OperationHeader& b) {
    return a.sequence == b.sequence && a.elements == b.elements && a.root == b.root && a.kind == b.kind &&
           a.type == b.type && a.reduction == b.reduction && a.compressed == b.compressed &&
           may_be_one(static_cast<CollectiveCall>(a.call), static_cast<CollectiveCall>(b.call));
  }
};

// A collective submitted to the pipeline.
struct Job {
  // The memory that the operation reads and writes. Kept until no thread of the executor uses the operation
  // and the messages between hosts have released it, which after an error is later than done().
  std::shared_ptr<void> memory;
  std::unique_ptr<Operation> operation;
  OperationHeader header;
  Deadline deadline = Deadline::never();
  std::function<void(std::exception_ptr)> done;  // called once, on a thread of the executor, without locks
};

// Runs collectives in the order of submission, on two threads: the first steps of chunks run ahead of the
// second steps, up to a window of chunks, also across collectives. The first error is final: it fails all
// operations in flight here, wakes the ranks of this host and closes the connections to other hosts, so that
// every rank notices at once. Any thread may call.
class TwoStageExecutor {
 public:
  // A callback that receives an error before other ranks can see that this rank failed. Returns the error to
  // report instead, which may be another rank's error that caused it.
  using OnFailure = std::function<std::exception_ptr(std::exception_ptr)>;

  static std::shared_ptr<TwoStageExecutor> start(std::unique_ptr<Transports> transports, int window,
                                                 OnFailure on_failure);
  // Blocks until nothing is in flight, up to `patience`; then fails the rest. Returns at once on one of the
  // executor's own threads, which other threads wait for.
  void drain(Duration patience);
  // Fails operations in flight, ends the threads and closes the connections. Call it once, after the last use
  // and before the last reference is released. The executor's own threads may call it in done(): the callback
  // of a future may destroy a group.
  void stop();
  TwoStageExecutor(const TwoStageExecutor&) = delete;
  TwoStageExecutor& operator=(const TwoStageExecutor&) = delete;

  // Sets the header's sequence number. Throws the executor's error when there has been one.
  void submit(Job job);
  std::uint64_t submitted() const;
  // Fails all operations in flight and all later jobs with `reason`; the peers notice as with an error.
  void abort(const std::string& reason);
  // Aborts with this error.
  void abort(const std::exception_ptr& error) { fail(error, nullptr); }

  Transports& transports() { return *transports_; }

 private:
  TwoStageExecutor(std::unique_ptr<Transports> transports, int window, OnFailure on_failure);

  struct Entry;
  // Position of a thread: a job and a chunk.
  struct Position {
    std::shared_ptr<Entry> entry;
    std::size_t chunk = 0;
  };
  void run_first();
  void run_second();
  void exchange_headers(Entry& entry);
  void check_headers(Entry& entry);
  void fail(std::exception_ptr error, const Entry* entry);
  void loop(void (TwoStageExecutor::*steps)());

  std::unique_ptr<Transports> transports_;
  const int window_;
  OnFailure on_failure_;

  mutable std::mutex mutex_;  // protects everything below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Entry>> waiting_;  // jobs whose first steps have not begun
  std::deque<Position> gathered_;               // chunks whose second steps have not begun
  int under_way_ = 0;                           // chunks between their two steps
  std::deque<std::shared_ptr<Entry>> unfinished_;
  std::uint64_t submitted_ = 0;
  bool finishing_ = false;  // completion of the last job is being reported
  bool stopping_ = false;
  std::exception_ptr failure_;

  std::thread first_;  // both threads share ownership of this object
  std::thread second_;
};

}  // namespace rondo::hierarchical
