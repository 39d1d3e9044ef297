#pragma once

#include <c10/core/Event.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "rondo/backend/engine/request.h"
#include "rondo/base/time.h"

namespace rondo {

// An operation between accelerators, from its start until it has ended on the devices. Keeps no tensors.
// Any thread.
class DeviceOperation {
 public:
  // `number` counts the operations of the group from 1; `peers` are the ranks of a message, empty for a
  // collective.
  DeviceOperation(std::string name, std::uint64_t number, std::vector<int> peers, Duration timeout)
      : name(std::move(name)), number(number), peers(std::move(peers)), deadline(Deadline::after(timeout)) {}

  // Records that the engine has started it.
  void set_work(const c10::intrusive_ptr<c10d::Work>& work);
  // Records that the engine has refused it.
  void cancel();
  // Records that a stream of `device`, the calling thread's current one, now waits for it.
  void note_wait(c10::Device device);

  // Returns whether it has ended. Without a wait it counts as ended once its Work is destroyed.
  bool has_ended();
  // Returns whether wait() has returned.
  bool is_awaited();

  const std::string name;
  const std::uint64_t number;
  const std::vector<int> peers;
  const Deadline deadline;
  const TimePoint started = Clock::now();

 private:
  std::mutex mutex_;  // protects the fields below
  bool is_cancelled_ = false;
  std::optional<c10::weak_intrusive_ptr<c10d::Work>> work_;  // empty: being started
  std::optional<c10::Event> event_;                          // recorded in the stream that waits for it
};

// A group whose operations between accelerators are watched. DeviceWatch's mutex protects the fields that
// change.
struct WatchedGroup {
  std::string name;
  std::int64_t id = 0;           // the same on all members, unique in the job, above 0
  std::vector<int> world_ranks;  // world ranks of the members
  c10::intrusive_ptr<c10d::Backend> device;
  c10::intrusive_ptr<c10d::Backend> control;
  std::uint64_t issued = 0;                                      // number of operations so far
  std::deque<std::shared_ptr<DeviceOperation>> operations = {};  // unfinished operations, in order
  std::exception_ptr failure = {};
};

// A watch that ends operations between accelerators that cannot complete. If a peer has died, is stopped or
// never arrives, a collective of NCCL does not end, and neither does the host's wait for its stream.
// Therefore a thread on each rank of a job exchanges heartbeats with the others over a CPU engine, which
// detects and names such a peer as in CPU collectives. On such a failure, and when an operation has passed
// its deadline, the watch aborts the communicators of all groups of the job on this rank, which wakes waiting
// threads. The groups' CPU engines fail with the same error.
//
// A rank that leaves notifies the others, which is not a failure. Heartbeats end with it: operations that
// need it and have not ended a second later fail, naming it.
//
// Any thread may call, unless a method says otherwise.
class DeviceWatch {
 public:
  // `request` contains the ranks of the job. Collective if there are several; blocking.
  explicit DeviceWatch(const BackendRequest& request);
  // Calls leave().
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Adds a group. Collective among the ranks of `request`.
  std::shared_ptr<WatchedGroup> add(const BackendRequest& request, c10::intrusive_ptr<c10d::Backend> device,
                                    c10::intrusive_ptr<c10d::Backend> control);
  // Removes a group. The watch leaves after the last one.
  void remove(const std::shared_ptr<WatchedGroup>& group) noexcept;
  // Tells the other ranks that this one no longer uses its accelerators, and ends the thread. Waits for their
  // heartbeats, some seconds at most. One thread.
  void leave() noexcept;
  bool has_left() const;

  // Registers an operation that is about to start. Throws the failure of the group.
  std::shared_ptr<DeviceOperation> begin(WatchedGroup& group, std::string name, std::vector<int> peers,
                                         Duration timeout);
  // Throws the failure of the group, if there has been one.
  void throw_if_failed(const WatchedGroup& group) const;
  // Throws the failure that caused an error of the device's engine if the watch detects one within a second,
  // else the error.
  [[noreturn]] void throw_cause_of(const WatchedGroup& group, const std::exception_ptr& error);
  bool has_lost_results() const;

 private:
  struct Beat;
  struct Overdue {
    std::shared_ptr<WatchedGroup> group;
    std::shared_ptr<DeviceOperation> operation;
  };

  void run();
  bool exchange_beats();
  void pace();
  Beat compose();
  bool digest(std::span<const Beat> beats);
  void guard_alone();
  Overdue oldest_overdue();
  std::vector<Overdue> oldest_of_groups();
  void fail(const std::exception_ptr& error);

  const int rank_;
  const std::vector<int> world_ranks_;
  c10::intrusive_ptr<c10d::Backend> heartbeats_;  // null: the job has one rank

  // Used by the thread alone.
  std::int64_t asked_ = 0;  // id of the group that all ranks report on in the next heartbeat; 0: none
  int asker_ = -1;          // the rank that asked
  Overdue overdue_;         // the operation that this rank asked about

  mutable std::mutex mutex_;  // protects everything below
  std::condition_variable changed_;
  std::vector<std::shared_ptr<WatchedGroup>> groups_;
  std::vector<int> left_;  // world ranks that have left
  std::exception_ptr failure_;
  bool has_lost_results_ = false;
  bool is_leaving_ = false;
  bool thread_has_ended_ = false;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace rondo
