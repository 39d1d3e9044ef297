#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rondo/channel/failure.h"
#include "rondo/channel/shared_memory.h"
#include "rondo/channel/store.h"
#include "rondo/channel/waiting.h"
#include "rondo/collective/shared_memory/layout.h"

namespace rondo::shared_memory {

struct GroupOptions {
  std::string group_name = "world";
  int rank = 0;
  int size = 1;
  // World ranks of the members, for messages; empty: the same as in the group.
  std::vector<int> world_ranks;
  // Longest wait of the rendezvous, and of any operation without a deadline.
  Duration timeout = std::chrono::minutes(5);
  // Time after which a rank that is waited for and stopped by a signal is an error, independent of the
  // timeout. All peers raise it within 3 s of the signal, even if they wait for each other in turn, as a
  // DeviceWatch does.
  Duration stopped_grace = std::chrono::milliseconds(2800);
  // Returns the error to report in place of a failure that this rank has detected, which may be the
  // consequence of a failure in another group. Called with the engine's lock held. May be empty.
  std::function<std::exception_ptr(const std::exception_ptr&)> cause_of = {};
};

// The mapped files of a group's ranks, and the liveness of their processes.
class Peers {
 public:
  // Publishes this rank's file and maps all others. Collective over the store. Throws TimeoutError naming the
  // ranks that did not arrive, PeerLostError naming a rank whose process ended (also on ranks that only see
  // others fail because of it), and Error if a rank runs on another host. With a null `arena` nothing is
  // registered.
  Peers(Store& store, const GroupOptions& options, std::shared_ptr<SharedArena> arena);
  // Marks this rank as left.
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const GroupOptions& options() const { return options_; }
  // Returns the result of GroupOptions::cause_of, or `error` itself.
  std::exception_ptr cause_of(const std::exception_ptr& error) const {
    return options_.cause_of ? options_.cause_of(error) : error;
  }
  RankSegment& own() const { return *segments_[static_cast<std::size_t>(options_.rank)]; }
  RankSegment& segment(int rank) const { return *segments_[static_cast<std::size_t>(rank)]; }

  // Fetches this rank's slot of an operation to write to it soon: peers have read it, so the first store
  // would otherwise wait for their caches.
  void prefetch_slot(std::uint64_t sequence) const {
    const auto* slot = reinterpret_cast<const std::byte*>(&own().slots[sequence % kSlots]);
    for (std::size_t line = 0; line < sizeof(Slot); line += kCacheLine) prefetch_to_write(slot + line);
  }

  // Returns whether peers can access this address in place.
  bool registered(const void* pointer) const { return arena_ != nullptr && arena_->contains(pointer); }
  std::uint64_t arena_offset(const void* pointer) const { return arena_->offset(pointer); }
  // Returns the address in this process of position `offset` of a rank's arena.
  std::byte* arena_address(int rank, std::uint64_t offset) const {
    return arenas_[static_cast<std::size_t>(rank)]->data() + offset;
  }

  // Blocks until every rank has called it, for at most the group's timeout: then no rank needs the store of
  // the rendezvous any more, and the rank that keeps it may end. Throws TimeoutError naming the ranks that
  // did not call, and PeerLostError for one that ended or left before.
  void finish_rendezvous() const;

  // Publishes this rank's failure and its reason.
  void announce_failure(const ChannelFailure& failure) const;
  // Returns the announced failure of a rank whose state is failed.
  ChannelFailure failure_of(int rank) const;
  // Returns whether no live peer is inside this rank's registered memory any more; waits for them up to
  // `patience`. Call it after announce_failure(), which keeps peers from entering again, see Touching.
  bool hands_off(Duration patience) const;
  // Wakes every sleeping rank. Call it after publishing progress.
  void notify_peers() const;
  // Returns the ranks whose process has ended.
  std::vector<int> ended() const { return watch_.ended(); }
  // Returns the ranks whose process is stopped by a signal.
  std::vector<int> stopped() const { return watch_.stopped(); }
  // Names a rank: "rank 3 (pid 1234)"; in a sub-group also its world rank.
  std::string who(int rank) const;
  // Names this rank: "rank 0 of 4 (pid 12, host a, group 'world')".
  std::string self() const;

 private:
  void meet(Store& store, const PublishedMemory& own);
  void attach(Store& store, int rank, const std::string& announced, const Deadline& deadline);
  void wait_until_attached(const Deadline& deadline) const;
  void throw_if_any_failed() const;
  [[noreturn]] void throw_unreachable(Store& store, int rank, const std::string& reason,
                                      const Deadline& deadline) const;

  GroupOptions options_;
  std::shared_ptr<SharedArena> arena_;
  std::vector<std::shared_ptr<SharedMemory>> files_;
  std::vector<std::shared_ptr<SharedMemory>> arenas_;
  std::vector<RankSegment*> segments_;
  std::vector<pid_t> pids_;
  std::string host_;
  PeerWatch watch_;
};

// A scope in which this rank may read and write the registered memory of its peers. The constructor throws
// the failure of a peer that has given up, whose memory may be freed.
class Touching {
 public:
  explicit Touching(const Peers& peers);
  Touching(const Touching&) = delete;
  Touching& operator=(const Touching&) = delete;
  ~Touching() { peers_.own().touching.store(0); }

 private:
  const Peers& peers_;
};

}  // namespace rondo::shared_memory
