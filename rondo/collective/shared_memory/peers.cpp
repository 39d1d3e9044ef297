#include "rondo/collective/shared_memory/peers.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_memory.h"
#include "rondo/channel/store.h"
#include "rondo/channel/waiting.h"

namespace rondo::shared_memory {
namespace {

// Time to wait for an unreachable rank to exit, limited by the timeout of the rendezvous. Only a rank that
// stays alive makes this rank wait so long.
constexpr std::chrono::seconds kEnding{5};

// Returns an identifier of the kernel and process namespace: ranks that differ cannot open each other's
// memory.
std::string machine_identity() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string identity;
  std::getline(boot, identity);
  std::array<char, 64> target{};
  if (readlink("/proc/self/ns/pid", target.data(), target.size() - 1) > 0)
    identity += std::string("/") + target.data();
  return identity;
}

std::string rank_key(int rank) { return str("shared_memory/", rank); }
std::string failure_key(int rank) { return str("shared_memory/", rank, "/failure"); }

void record(RankSegment& segment, const ChannelFailure& failure) {
  segment.failure_kind = failure.kind;
  segment.failure_blamed = failure.blamed;
  const std::size_t length = std::min(failure.text.size(), sizeof(segment.failure_text) - 1);
  std::memcpy(segment.failure_text, failure.text.data(), length);
  segment.failure_text[length] = '\0';
  segment.state.store(RankState::failed);
}

}  // namespace

Peers::Peers(Store& store, const GroupOptions& options, std::shared_ptr<SharedArena> arena)
    : options_(options), arena_(std::move(arena)), host_(host_name()) {
  if (options_.world_ranks.empty()) {
    for (int r = 0; r < options_.size; ++r) options_.world_ranks.push_back(r);
  }
  const Bytes size{RankSegment::bytes(options_.size)};
  const std::string what = str("the shared memory of group '", options_.group_name, "'");
  require_room(size, what);
  const PublishedMemory own = publish_shared_memory("rondo-group", size);
  // Rings commit their pages when messages use them.
  own.memory->commit(0, sizeof(RankSegment), what);
  auto* segment = reinterpret_cast<RankSegment*>(own.memory->data());
  segment->layout_bytes = size.count;
  segment->state.store(RankState::active);
  try {
    meet(store, own);
  } catch (...) {
    // Peers may be in an earlier or later operation; the recorded failure keeps them from blaming this rank.
    const ChannelFailure failure = describe_failure(std::current_exception(), options_.rank);
    record(*segment, failure);
    leave_failure(store, failure_key(options_.rank), failure);
    throw;
  }
}

void Peers::meet(Store& store, const PublishedMemory& own) {
  const Wait wait{Deadline::after(options_.timeout), nullptr};
  const auto size = static_cast<std::size_t>(options_.size);
  files_.resize(size);
  arenas_.resize(size);
  segments_.resize(size);
  pids_.resize(size);
  const auto self = static_cast<std::size_t>(options_.rank);
  files_[self] = own.memory;
  segments_[self] = reinterpret_cast<RankSegment*>(own.memory->data());
  store.set(rank_key(options_.rank),
            str(to_string(own.address), " ", arena_ != nullptr ? to_string(arena_->address()) : "-", " ",
                machine_identity(), " ", host_));
  for (int r = 0; r < options_.size; ++r) {
    std::string announced;
    try {
      announced = store.get(rank_key(r), wait);
    } catch (const TimeoutError&) {
      const std::vector<int> missing = ranks_without_value(store, options_.size, rank_key);
      throw TimeoutError(
          str("rank ", options_.rank, " waited ", to_string(options_.timeout), " for the group '",
              options_.group_name, "' of ", options_.size, " ranks; missing: ", join(missing, ", "),
              ". Were all ranks started, with the same world size?"),
          missing);
    }
    attach(store, r, announced, wait.deadline);
  }
  wait_until_attached(wait.deadline);
}

void Peers::attach(Store& store, int rank, const std::string& announced, const Deadline& deadline) {
  const auto at = static_cast<std::size_t>(rank);
  const std::vector<std::string> fields = split(announced, ' ');
  if (fields.size() < 4)
    throw Error(str("rank ", rank, " announced itself as '", announced, "'; is it another version?"));
  if (fields[2] != machine_identity()) {
    throw Error(str("the native engine reaches ranks on one host only, but rank ", options_.rank, " is on ",
                    host_, " and rank ", rank, " on ", fields[3],
                    " (or in another container); choose backend gloo (--backend gloo) to cross hosts"));
  }
  const SharedMemoryAddress address = parse_shared_memory_address(fields[0]);
  pids_[at] = address.pid;
  try {
    if (rank != options_.rank) files_[at] = attach_shared_memory(address);
    if (arena_ != nullptr && fields[1] != "-")
      arenas_[at] = attach_shared_memory(parse_shared_memory_address(fields[1]));
  } catch (const Error& e) {
    throw_unreachable(store, rank, e.what(), deadline);
  }
  segments_[at] = reinterpret_cast<RankSegment*>(files_[at]->data());
  if (segments_[at]->layout_bytes != RankSegment::bytes(options_.size)) {
    throw Error(str("rank ", rank,
                    " lays out its shared memory differently; do all ranks run the same version of rondo, "
                    "with the same world size?"));
  }
  if (rank != options_.rank) watch_.add(rank, address.pid);
  own().reached.store(static_cast<std::uint32_t>(rank) + 1);
  segments_[at]->attached.fetch_add(1);
  futex_wake_all(segments_[at]->attached);
}

// Throws for a rank whose memory cannot be opened, because it has ended or is not visible. If it ended
// because of another rank, names that one.
void Peers::throw_unreachable(Store& store, int rank, const std::string& reason,
                              const Deadline& deadline) const {
  throw_if_any_failed();
  if (const auto left = find_failure(store, failure_key(rank))) {
    throw_failure(
        str("group '", options_.group_name, "' could not be formed, because rank ", rank, " failed: "),
        *left);
  }
  PeerWatch now;
  now.add(rank, pids_[static_cast<std::size_t>(rank)]);
  if (now.ended(std::min<Duration>(kEnding, deadline.remaining())).empty()) throw Error(reason);
  throw PeerLostError(str(who(rank), " ended while the group '", options_.group_name, "' was being formed"),
                      {rank});
}

void Peers::throw_if_any_failed() const {
  // Checks processes first: a rank that fails sets its state before its process ends.
  std::vector<int> gone = watch_.ended();
  for (int r = 0; r < options_.size; ++r) {
    const RankSegment* other = segments_[static_cast<std::size_t>(r)];
    if (other == nullptr || r == options_.rank || other->state.load() != RankState::failed) continue;
    throw_failure(str("group '", options_.group_name, "' could not be formed, because ", who(r), " failed: "),
                  failure_of(r));
  }
  // A rank that has left had finished with the group, which all ranks had joined by then.
  std::erase_if(gone, [&](int r) { return segment(r).state.load() == RankState::left; });
  if (gone.empty()) return;
  throw PeerLostError(
      str(who(gone.front()), " ended while the group '", options_.group_name, "' was being formed"), gone);
}

// Blocks until all ranks have mapped this rank's file; until then it must not leave.
void Peers::wait_until_attached(const Deadline& deadline) const {
  while (true) {
    const std::uint32_t attached = own().attached.load();
    // Checks also after all have attached: one of them may have ended since.
    throw_if_any_failed();
    if (attached == static_cast<std::uint32_t>(options_.size)) return;
    if (deadline.passed()) {
      std::vector<int> missing;
      for (int r = 0; r < options_.size; ++r) {
        if (segment(r).reached.load() <= static_cast<std::uint32_t>(options_.rank)) missing.push_back(r);
      }
      std::vector<std::string> names;
      for (const int r : missing) names.push_back(who(r));
      throw TimeoutError(
          str(who(options_.rank), " waited ", to_string(options_.timeout), " for the ", options_.size,
              " ranks of group '", options_.group_name, "' to map its memory; missing: ", join(names, ", ")),
          missing);
    }
    futex_wait(own().attached, attached, std::chrono::milliseconds(10));
  }
}

void Peers::finish_rendezvous() const {
  const Deadline deadline = Deadline::after(options_.timeout);
  own().joined.store(1);
  futex_wake_all(own().joined);
  for (int r = 0; r < options_.size; ++r) {
    RankSegment& other = segment(r);
    while (other.joined.load() == 0) {
      // A rank joins before it leaves, so its state is read first.
      const bool left = other.state.load() == RankState::left;
      throw_if_any_failed();
      if (left && other.joined.load() == 0) {
        throw PeerLostError(str(who(r), " left while the group '", options_.group_name, "' was being formed"),
                            {r});
      }
      if (deadline.passed()) {
        throw TimeoutError(str("rank ", options_.rank, " waited ", to_string(options_.timeout), " for ",
                               who(r), " to finish the rendezvous of group '", options_.group_name, "'"),
                           {r});
      }
      futex_wait(other.joined, 0, std::chrono::milliseconds(10));
    }
  }
}

Peers::~Peers() {
  // A forked child must not mark its parent as left.
  if (getpid() != pids_[static_cast<std::size_t>(options_.rank)]) return;
  if (own().state.load() == RankState::active) own().state.store(RankState::left);
  notify_peers();
}

void Peers::announce_failure(const ChannelFailure& failure) const {
  if (own().state.load() == RankState::failed) return;
  record(own(), failure);
  notify_peers();
}

bool Peers::hands_off(Duration patience) const {
  const Deadline deadline = Deadline::after(patience);
  for (int r = 0; r < options_.size; ++r) {
    while (r != options_.rank && segment(r).touching.load() != 0) {
      const std::vector<int> gone = watch_.ended();
      if (std::find(gone.begin(), gone.end(), r) != gone.end()) break;
      if (deadline.passed()) return false;
      sched_yield();
    }
  }
  return true;
}

Touching::Touching(const Peers& peers) : peers_(peers) {
  peers.own().touching.store(1);
  for (int r = 0; r < peers.size(); ++r) {
    if (r == peers.rank() || peers.segment(r).state.load() != RankState::failed) continue;
    peers.own().touching.store(0);
    throw_failure(str(peers.who(r), " failed: "), peers.failure_of(r));
  }
}

ChannelFailure Peers::failure_of(int rank) const {
  const RankSegment& other = segment(rank);
  return {other.failure_kind, other.failure_blamed, other.failure_text};
}

void Peers::notify_peers() const {
  // Orders the loads of `sleeping` after everything that was published before, see layout.h.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int r = 0; r < options_.size; ++r) {
    if (r == options_.rank) continue;
    RankSegment& peer = segment(r);
    if (peer.sleeping.load() == 0) continue;
    peer.wakeup.fetch_add(1);
    futex_wake_all(peer.wakeup);
  }
}

std::string Peers::who(int rank) const {
  const int world = options_.world_ranks[static_cast<std::size_t>(rank)];
  return str("rank ", rank, " (", world != rank ? str("world rank ", world, ", ") : "", "pid ",
             pids_[static_cast<std::size_t>(rank)], ")");
}

std::string Peers::self() const {
  const int world = options_.world_ranks[static_cast<std::size_t>(options_.rank)];
  return str("rank ", options_.rank, " of ", options_.size, " (",
             world != options_.rank ? str("world rank ", world, ", ") : "", "pid ", getpid(), ", host ",
             host_, ", group '", options_.group_name, "')");
}

}  // namespace rondo::shared_memory
