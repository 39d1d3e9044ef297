#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/base/time.h"

namespace rondo {

// A channel on which the first rank of a group announces to the others, segment by segment, which segment it
// starts next. One thread per rank uses it.
//
// The leader may have nothing to start for a long time, for example during an evaluation. Its own thread
// therefore sends heartbeats, and the other ranks time out when they receive nothing for `patience`.
class Leader {
 public:
  // `channel` has the ranks of the group whose segments are ordered, and is used for nothing else. All ranks
  // pass the same `patience`, the timeout for receiving from another rank.
  Leader(Group channel, Duration patience);
  ~Leader();
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  bool leads() const { return channel_.rank() == 0; }
  // Announces the next segment to all other ranks. Leader only. Throws CommunicationError.
  void publish(std::uint64_t segment);
  // Returns the next segment; empty if the leader has stopped. Blocks while the leader is alive. Throws
  // TimeoutError, naming the leader, after `patience` without a message. Other ranks only.
  std::optional<std::uint64_t> next();
  // Makes next() return empty on the other ranks. Leader only.
  void stop() noexcept;
  // Returns the exception to report if the leader has stopped although more was to start, as
  // ExtendedBackend::cause_of does.
  std::exception_ptr cause_of(const std::exception_ptr& error) const noexcept;
  // Cancels publish() and next(): pending and later calls throw CancelledError. May be called from any
  // thread. For a rank that ends while a peer, possibly dead, neither sends nor receives: Gloo may wait for a
  // lost peer.
  void give_up() noexcept;

 private:
  void send_to_all(std::int64_t word);
  void wait_for(const std::vector<c10::intrusive_ptr<c10d::Work>>& works, Duration limit);
  void send_heartbeat();
  void end_pulse();

  const Group channel_;
  const Duration patience_;
  std::mutex sending_;  // held while a message is sent
  std::mutex mutex_;    // protects the four members below
  std::condition_variable changed_;
  bool ended_ = false;
  bool given_up_ = false;
  TimePoint last_word_;
  std::vector<c10::intrusive_ptr<c10d::Work>> under_way_;  // operations that a call waits for
  std::thread pulse_;                                      // last member, because it uses the ones above
};

}  // namespace rondo
