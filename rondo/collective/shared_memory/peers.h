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
  // For messages: the members' ranks in the world; empty means the same as in the group.
  std::vector<int> world_ranks;
  // Longest wait of the rendezvous, and of any operation for which the caller gives no deadline.
  Duration timeout = std::chrono::minutes(5);
  // A rank that is waited for and has been stopped by a signal this long is an error, whatever the timeout.
  // All peers have raised it 3 s after the signal, also where they wait in turns, as a DeviceWatch does.
  Duration stopped_grace = std::chrono::milliseconds(2800);
  // Gives what is reported in place of a failure that this rank has found, which may be the consequence of
  // another's in another group. Called under the engine's lock. May be empty.
  std::function<std::exception_ptr(const std::exception_ptr&)> cause_of = {};
};

// The mapped files of a group's ranks: who is where, who still lives.
class Peers {
 public:
  // Collective over the store: publishes this rank's file and maps all others. Throws TimeoutError naming the
  // ranks that did not come, PeerLostError naming the one whose process ended (also on
  // ranks that only see others give up because of it), Error when a rank runs on another host. `arena` may be
  // null: then nothing is registered.
  Peers(Store& store, const GroupOptions& options, std::shared_ptr<SharedArena> arena);
  // Tells the others that this rank has left.
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const GroupOptions& options() const { return options_; }
  // GroupOptions::cause_of, or `error` itself.
  std::exception_ptr cause_of(const std::exception_ptr& error) const {
    return options_.cause_of ? options_.cause_of(error) : error;
  }
  RankSegment& own() const { return *segments_[static_cast<std::size_t>(options_.rank)]; }
  RankSegment& segment(int rank) const { return *segments_[static_cast<std::size_t>(rank)]; }

  // Whether peers can reach this address in place.
  bool registered(const void* pointer) const { return arena_ != nullptr && arena_->contains(pointer); }
  std::uint64_t arena_offset(const void* pointer) const { return arena_->offset(pointer); }
  // Where this process sees position `offset` of a rank's arena.
  std::byte* arena_address(int rank, std::uint64_t offset) const {
    return arenas_[static_cast<std::size_t>(rank)]->data() + offset;
  }

  // Blocks until every rank has called it, for at most the group's timeout: nobody needs the store of the
  // rendezvous any more, and the rank that holds it may end. Throws TimeoutError naming the ranks that did
  // not call, PeerLostError for one that ended or left before.
  void finish_rendezvous() const;

  // Publishes that this rank can go on no more, and why.
  void announce_failure(const ChannelFailure& failure) const;
  // What a rank whose state is failed has announced.
  ChannelFailure failure_of(int rank) const;
  // After announce_failure: whether no living peer is inside this rank's registered memory any more; waits
  // for them, at most for `patience`. None comes in again, see Touching.
  bool hands_off(Duration patience) const;
  // Wakes every rank that sleeps. Called after publishing progress.
  void notify_peers() const;
  // Ranks whose process has ended.
  std::vector<int> ended() const { return watch_.ended(); }
  // Ranks whose process is stopped by a signal.
  std::vector<int> stopped() const { return watch_.stopped(); }
  // "rank 3 (pid 1234)"; in a sub-group also the rank in the world.
  std::string who(int rank) const;
  // "rank 0 (pid 12, host a) of 4 in group world".
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

// While it lives, this rank may read and write the registered memory of its peers. Throws what such a peer
// has announced when one has given up: then its memory may be gone.
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
