#include "rondo/collective/shared_memory/peers.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/futex.h"

namespace rondo::shared_memory {
namespace {

// Names the kernel and process namespace: ranks that differ cannot open each other's memory.
std::string machine_identity() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string identity;
  std::getline(boot, identity);
  std::array<char, 64> target{};
  if (readlink("/proc/self/ns/pid", target.data(), target.size() - 1) > 0)
    identity += std::string("/") + target.data();
  return identity;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string rank_key(int rank) { return str("shared_memory/", rank); }

}  // namespace

Peers::Peers(Store& store, const GroupOptions& options, std::shared_ptr<SharedArena> arena)
    : options_(options), arena_(std::move(arena)), host_(host_name()) {
  const auto size = static_cast<std::size_t>(options_.size);
  if (options_.world_ranks.empty()) {
    for (int r = 0; r < options_.size; ++r) options_.world_ranks.push_back(r);
  }
  const Wait wait{Deadline::after(options_.timeout), nullptr};
  const PublishedMemory own_file =
      publish_shared_memory("rondo-group", Bytes{RankSegment::bytes(options_.size)});
  auto* own_segment = reinterpret_cast<RankSegment*>(own_file.memory->data());
  own_segment->layout_bytes = RankSegment::bytes(options_.size);
  own_segment->state.store(RankState::active);
  const std::string identity = machine_identity();
  store.set(rank_key(options_.rank),
            str(to_string(own_file.address), " ", arena_ != nullptr ? to_string(arena_->address()) : "-", " ",
                identity, " ", host_));

  files_.resize(size);
  arenas_.resize(size);
  segments_.resize(size);
  pids_.resize(size);
  for (int r = 0; r < options_.size; ++r) {
    const auto at = static_cast<std::size_t>(r);
    std::string announced;
    try {
      announced = store.get(rank_key(r), wait);
    } catch (const TimeoutError&) {
      std::vector<int> missing;
      for (int other = r; other < options_.size; ++other) {
        if (!store.try_get(rank_key(other))) missing.push_back(other);
      }
      throw TimeoutError(
          str("rank ", options_.rank, " waited ", to_string(options_.timeout), " for the group '",
              options_.group_name, "' of ", options_.size, " ranks; missing: ", join(missing, ", "),
              ". Were all ranks started, with the same world size?"),
          missing);
    }
    const std::vector<std::string> fields = split(announced, ' ');
    if (fields.size() < 4)
      throw Error(str("rank ", r, " announced itself as '", announced, "'; is it another version?"));
    if (fields[2] != identity) {
      throw Error(str("the native engine reaches ranks on one host only, but rank ", options_.rank, " is on ",
                      host_, " and rank ", r, " on ", fields[3],
                      " (or in another container); choose --backend gloo to cross hosts"));
    }
    const SharedMemoryAddress address = parse_shared_memory_address(fields[0]);
    files_[at] = r == options_.rank ? own_file.memory : attach_shared_memory(address);
    segments_[at] = reinterpret_cast<RankSegment*>(files_[at]->data());
    pids_[at] = address.pid;
    if (segments_[at]->layout_bytes != own_segment->layout_bytes) {
      throw Error(str("rank ", r,
                      " lays out its shared memory differently; do all ranks run the same version of rondo, "
                      "with the same world size?"));
    }
    if (arena_ != nullptr && fields[1] != "-")
      arenas_[at] = attach_shared_memory(parse_shared_memory_address(fields[1]));
    if (r != options_.rank) watch_.add(r, address.pid);
    segments_[at]->attached.fetch_add(1);
    futex_wake_all(segments_[at]->attached);
  }
  // Nobody may leave before all have mapped its file.
  while (true) {
    const std::uint32_t attached = own_segment->attached.load();
    if (attached == static_cast<std::uint32_t>(options_.size)) break;
    if (const std::vector<int> gone = watch_.ended(); !gone.empty()) {
      throw PeerLostError(
          str(who(gone.front()), " ended while the group '", options_.group_name, "' was being formed"),
          gone);
    }
    if (wait.deadline.passed()) {
      throw TimeoutError(
          str("only ", attached, " of ", options_.size, " ranks attached to the memory of rank ",
              options_.rank, " within ", to_string(options_.timeout)),
          {});
    }
    futex_wait(own_segment->attached, attached, std::chrono::milliseconds(10));
  }
}

Peers::~Peers() {
  // A forked child must not take leave for its parent.
  if (getpid() != pids_[static_cast<std::size_t>(options_.rank)]) return;
  if (own().state.load() == RankState::active) own().state.store(RankState::left);
  ring_bells();
}

void Peers::announce_failure(const std::string& reason) const {
  RankSegment& segment = own();
  if (segment.state.load() == RankState::failed) return;
  const std::size_t length = std::min(reason.size(), sizeof(segment.failure) - 1);
  std::memcpy(segment.failure, reason.data(), length);
  segment.failure[length] = '\0';
  segment.state.store(RankState::failed);
  ring_bells();
}

void Peers::ring_bells() const {
  for (int r = 0; r < options_.size; ++r) {
    if (r == options_.rank) continue;
    RankSegment& peer = segment(r);
    if (peer.sleeping.load() == 0) continue;
    peer.bell.fetch_add(1);
    futex_wake_all(peer.bell);
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
