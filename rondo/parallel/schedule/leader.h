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

// The channel on which the first rank of a group tells the others, block by block, what it starts next. One
// thread a rank uses it.
//
// The leader may have nothing to start for as long as an evaluation takes, so a thread of its own says in
// between that it is alive, and the others wait for a word of it no longer than `patience`.
class Leader {
 public:
  // `channel` has the ranks of the group whose blocks are ordered, and nobody else uses it. All ranks give
  // the same `patience`: how long they wait for any other rank.
  Leader(Group channel, Duration patience);
  ~Leader();
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  bool leads() const { return channel_.rank() == 0; }
  // On the leader: tells all others. Throws CommunicationError.
  void publish(std::uint64_t block);
  // On the others: the next block; empty when the leader has stopped. Waits as long as the leader is alive;
  // throws TimeoutError naming it when nothing was heard of it for `patience`.
  std::optional<std::uint64_t> next();
  // On the leader: lets the others' next() return empty. Never throws.
  void stop() noexcept;
  // Returns the exception to report where the leader has stopped though there was more to start, as
  // ExtendedBackend::cause_of does.
  std::exception_ptr cause_of(const std::exception_ptr& error) const noexcept;
  // From any thread: whoever waits in publish() or next() throws CancelledError, now and from now on. For a
  // rank that ends while another, which may be dead, does not take or say a word: Gloo may wait for one that
  // is gone.
  void give_up() noexcept;

 private:
  void send_to_all(std::int64_t word);
  void wait_for(const std::vector<c10::intrusive_ptr<c10d::Work>>& works, Duration limit);
  void say_alive();
  void end_pulse();

  const Group channel_;
  const Duration patience_;
  std::mutex sending_;  // held while a word is sent
  std::mutex mutex_;    // protects the four below
  std::condition_variable changed_;
  bool ended_ = false;
  bool given_up_ = false;
  TimePoint last_word_;
  std::vector<c10::intrusive_ptr<c10d::Work>> under_way_;  // what somebody waits for
  std::thread pulse_;                                      // last: it uses everything above
};

}  // namespace rondo
