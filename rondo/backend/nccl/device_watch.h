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

// An operation between accelerators, from its start until the devices are through with it. It keeps no
// tensors. Any thread.
class DeviceOperation {
 public:
  // `number` counts the operations of the group from 1; `peers` are the ranks of a message, empty for a
  // collective.
  DeviceOperation(std::string name, std::uint64_t number, std::vector<int> peers, Duration timeout)
      : name(std::move(name)), number(number), peers(std::move(peers)), deadline(Deadline::after(timeout)) {}

  // The engine has started it.
  void set_work(const c10::intrusive_ptr<c10d::Work>& work);
  // The engine has refused it.
  void cancel();
  // A stream of `device`, the calling thread's current one, now waits for it.
  void note_wait(c10::Device device);

  // Whether it has ended. One that nobody waits for counts as ended once its Work is gone.
  bool has_ended();
  // Whether wait() has returned.
  bool is_awaited();

  const std::string name;
  const std::uint64_t number;
  const std::vector<int> peers;
  const Deadline deadline;
  const TimePoint started = Clock::now();

 private:
  std::mutex mutex_;  // protects what follows
  bool is_cancelled_ = false;
  std::optional<c10::weak_intrusive_ptr<c10d::Work>> work_;  // empty: it is being started
  std::optional<c10::Event> event_;                          // in the stream that waits for it
};

// A group whose operations between accelerators are watched. DeviceWatch's mutex protects what is not
// constant.
struct WatchedGroup {
  std::string name;
  std::int64_t id = 0;           // the same on all members, of no other group of the job, above 0
  std::vector<int> world_ranks;  // of the members
  c10::intrusive_ptr<c10d::Backend> device;
  c10::intrusive_ptr<c10d::Backend> control;
  std::uint64_t issued = 0;                                      // operations so far
  std::deque<std::shared_ptr<DeviceOperation>> operations = {};  // that may not have ended, in order
  std::exception_ptr failure = {};
};

// Ends operations between accelerators that cannot complete. A collective of NCCL whose peer has died, is
// stopped or never comes lasts for ever, and so does the host's wait for its stream. A thread of each rank of
// a job therefore exchanges heartbeats with the others over an engine of the CPU, which notices and names
// such a peer as it does for collectives of the CPU. Then, and when an operation has passed its deadline, the
// watch aborts the communicators of all groups of the job on this rank, which wakes whoever waits, and fails
// their engines of the CPU with the same error.
//
// A rank that leaves tells the others and is no failure. Heartbeats end with it: operations that need it and
// have not ended a second later fail, naming it.
//
// Any thread may call, except where a method says otherwise.
class DeviceWatch {
 public:
  // The ranks of `request` are those of the job. Collective where there are several; blocking.
  explicit DeviceWatch(const BackendRequest& request);
  // Leaves, as leave() does.
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Collective among the ranks of `request`.
  std::shared_ptr<WatchedGroup> add(const BackendRequest& request, c10::intrusive_ptr<c10d::Backend> device,
                                    c10::intrusive_ptr<c10d::Backend> control);
  // The watch leaves after the last group.
  void remove(const std::shared_ptr<WatchedGroup>& group) noexcept;
  // Tells the other ranks that this one is through with its accelerators, and ends the thread. Waits for
  // their heartbeats, some seconds at most. One thread.
  void leave() noexcept;
  bool has_left() const;

  // An operation is about to be started. Throws the failure of the group.
  std::shared_ptr<DeviceOperation> begin(WatchedGroup& group, std::string name, std::vector<int> peers,
                                         Duration timeout);
  // Throws the failure of the group, if there has been one.
  void throw_if_failed(const WatchedGroup& group) const;
  // Throws the failure behind an error that the device's engine has raised, where the watch notices one
  // within a second, else the error.
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

  // The thread alone uses these.
  std::int64_t asked_ = 0;  // the group about which all ranks answer in the next heartbeat; 0: none
  int asker_ = -1;          // the rank that asked
  Overdue overdue_;         // about which this rank asked

  mutable std::mutex mutex_;  // protects everything below
  std::condition_variable changed_;
  std::vector<std::shared_ptr<WatchedGroup>> groups_;
  std::vector<int> left_;  // ranks of the world
  std::exception_ptr failure_;
  bool has_lost_results_ = false;
  bool is_leaving_ = false;
  bool thread_has_ended_ = false;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace rondo
