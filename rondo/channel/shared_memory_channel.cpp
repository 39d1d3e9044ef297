#include "rondo/channel/shared_memory_channel.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/store.h"
#include "rondo/channel/waiting.h"

namespace rondo {
namespace {

constexpr std::size_t kCacheLine = 64;
// Size of a ring, which holds a few pieces and fits in the second-level cache.
constexpr std::size_t kRingBytes = std::size_t{256} << 10;
// Bytes published at once: few enough that both sides work at the same time.
constexpr std::size_t kPieceBytes = std::size_t{32} << 10;

constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

struct alignas(kCacheLine) MessageHeader {
  std::uint64_t bytes;
  Tag tag;
};

enum class RankState : std::uint32_t { active, left, failed };

}  // namespace

// Stores that publish (written, read, state) and loads that check for them are sequentially consistent: a
// rank that is about to sleep first sets `sleeping` and then checks once more; a publisher first publishes
// and then checks who sleeps. The stores also release the bytes that were written before them.
struct SharedMemoryChannel::Ring {
  alignas(kCacheLine) std::atomic<std::uint64_t> written;  // set by the sender; never wraps
  std::atomic<std::uint32_t> sender_waits;                 // the sender waits for room
  alignas(kCacheLine) std::atomic<std::uint64_t> read;     // set by the receiver
  std::atomic<std::uint32_t> receiver_waits;               // the receiver waits for bytes
  alignas(kCacheLine) std::byte data[kRingBytes];
};

// The file of each rank: its state, and the rings from all others to it.
struct SharedMemoryChannel::RankFile {
  std::uint64_t nonce;  // set by publish_shared_memory
  std::uint64_t layout_bytes;
  std::atomic<std::uint32_t> attached;
  std::atomic<std::uint32_t> reached;  // ranks, in order, whose files the owner has mapped
  std::atomic<RankState> state;
  // Valid once state is failed.
  ChannelFailure::Kind failure_kind;
  std::int32_t failure_blamed;
  char failure_text[1024];
  alignas(kCacheLine) std::atomic<std::uint32_t> sleeping;
  std::atomic<std::uint32_t> wakeup;  // futex the owner sleeps on
  // One ring per rank follows this object.

  static std::size_t bytes(int size) {
    return sizeof(RankFile) + static_cast<std::size_t>(size) * sizeof(Ring);
  }
};

SharedMemoryChannel::Ring& SharedMemoryChannel::ring(int from, int to) const {
  static_assert(sizeof(RankFile) % alignof(Ring) == 0);
  return reinterpret_cast<Ring*>(&file(to) + 1)[from];
}

// The messages of one exchange, and their progress.
class SharedMemoryChannel::Transfers {
 public:
  Transfers(SharedMemoryChannel& channel, std::span<const Outgoing> outgoing,
            std::span<const Incoming> incoming)
      : channel_(channel), busy_(static_cast<std::size_t>(channel.size())) {
    for (const Outgoing& message : outgoing) sends_.push_back({&message, 0, false});
    for (const Incoming& message : incoming) receives_.push_back({&message, 0, false});
  }

  bool done() const { return sends_.empty() && receives_.empty(); }

  // Progresses all messages as far as possible without waiting; returns whether any data moved.
  bool progress() {
    bool moved = false;
    moved |= progress(receives_, [this](Receive& receive) { return pull(receive); });
    moved |= progress(sends_, [this](Send& send) { return push(send); });
    return moved;
  }

  // Publishes the peers that this rank waits for, so that other ranks can find the rank at fault.
  void publish_waiting(bool waiting) const {
    const int self = channel_.rank();
    for (const Send& send : sends_) channel_.ring(self, send.message->peer).sender_waits.store(waiting);
    for (const Receive& receive : receives_) {
      channel_.ring(receive.message->peer, self).receiver_waits.store(waiting);
    }
  }
  bool waits_for(int peer) const {
    const auto is_peer = [peer](const auto& transfer) { return transfer.message->peer == peer; };
    return std::any_of(sends_.begin(), sends_.end(), is_peer) ||
           std::any_of(receives_.begin(), receives_.end(), is_peer);
  }

 private:
  template <class Message>
  struct Transfer {
    const Message* message;
    std::size_t done;  // bytes of the message that have moved
    bool header_done;
  };
  using Send = Transfer<Outgoing>;
  using Receive = Transfer<Incoming>;

  // Progresses the messages of a list; only the first incomplete message of a peer may move. `move` returns
  // {moved, complete}.
  struct Moved {
    bool moved;
    bool complete;
  };
  template <class List, class Move>
  bool progress(List& list, Move move) {
    if (list.empty()) return false;
    std::fill(busy_.begin(), busy_.end(), false);
    bool moved = false;
    bool completed = false;
    for (auto& transfer : list) {
      auto peer_busy = busy_[static_cast<std::size_t>(transfer.message->peer)];
      if (peer_busy) continue;
      const Moved result = move(transfer);
      moved |= result.moved;
      completed |= result.complete;
      if (result.moved) channel_.notify(transfer.message->peer);
      if (result.complete)
        transfer.message = nullptr;
      else
        peer_busy = true;
    }
    if (completed) std::erase_if(list, [](const auto& transfer) { return transfer.message == nullptr; });
    return moved;
  }

  Moved push(Send& send) {
    Ring& ring = channel_.ring(channel_.rank(), send.message->peer);
    const std::span<const std::byte> bytes = send.message->bytes;
    std::uint64_t written = ring.written.load(std::memory_order_relaxed);
    bool moved = false;
    while (!send.header_done || send.done < bytes.size()) {
      const std::size_t room = kRingBytes - static_cast<std::size_t>(written - ring.read.load());
      const std::size_t at = written % kRingBytes;
      if (room == 0) return {moved, false};
      if (!send.header_done) {
        // Written with the first piece, so that a small message is published once.
        const MessageHeader header{bytes.size(), send.message->tag};
        std::memcpy(ring.data + at, &header, sizeof(header));
        written += sizeof(header);
        send.header_done = true;
        if (!bytes.empty() && room > sizeof(header)) continue;
      } else {
        const std::size_t count = std::min({bytes.size() - send.done, room, kRingBytes - at, kPieceBytes});
        std::memcpy(ring.data + at, bytes.data() + send.done, count);
        send.done += count;
        written += whole_lines(count);
      }
      ring.written.store(written);
      moved = true;
    }
    if (moved) ring.sender_waits.store(0, std::memory_order_relaxed);
    return {moved, true};
  }

  Moved pull(Receive& receive) {
    Ring& ring = channel_.ring(receive.message->peer, channel_.rank());
    const std::size_t size = receive.message->size;
    std::uint64_t read = ring.read.load(std::memory_order_relaxed);
    bool moved = false;
    while (!receive.header_done || receive.done < size) {
      const auto available = static_cast<std::size_t>(ring.written.load() - read);
      const std::size_t at = read % kRingBytes;
      if (available == 0) return {moved, false};
      if (!receive.header_done) {
        check(ring.data + at, *receive.message);
        read += sizeof(MessageHeader);
        receive.header_done = true;
      } else {
        const std::size_t count = std::min({size - receive.done, available, kRingBytes - at, kPieceBytes});
        receive.message->take({ring.data + at, count}, receive.done);
        receive.done += count;
        read += whole_lines(count);
      }
      ring.read.store(read);
      moved = true;
    }
    if (moved) ring.receiver_waits.store(0, std::memory_order_relaxed);
    return {moved, true};
  }

  void check(const std::byte* at, const Incoming& expected) const {
    MessageHeader header;
    std::memcpy(&header, at, sizeof(header));
    if (header.tag == expected.tag && header.bytes == expected.size) return;
    throw MismatchError(str(channel_.prefix(), "expects message ", expected.tag, " of ", expected.size,
                            " bytes from ", channel_.who(expected.peer), ", which sends message ", header.tag,
                            " of ", header.bytes, " bytes; do all ranks run the same operation?"),
                        {expected.peer});
  }

  SharedMemoryChannel& channel_;
  std::vector<Send> sends_;  // incomplete, in order
  std::vector<Receive> receives_;
  std::vector<bool> busy_;  // by peer, within progress()
};

SharedMemoryChannel::SharedMemoryChannel(Store& store, const Options& options) : options_(options) {
  // With a processor for every rank, spinning through a small exchange saves the 5 us of a sleep.
  spin_limit_ = options_.size <= sysconf(_SC_NPROCESSORS_ONLN) ? 4000 : 20;
  const PublishedMemory own = publish_shared_memory("rondo-channel", Bytes{RankFile::bytes(options_.size)});
  auto* own_file = reinterpret_cast<RankFile*>(own.memory->data());
  own_file->layout_bytes = RankFile::bytes(options_.size);
  try {
    meet(store, own);
  } catch (...) {
    // Peers may be in an earlier or later operation; the recorded failure keeps them from blaming this rank.
    const ChannelFailure failure = describe_failure(std::current_exception(), options_.rank);
    record(*own_file, failure);
    leave_failure(store, failure_key(options_.rank), failure);
    throw;
  }
}

std::string SharedMemoryChannel::rank_key(int rank) const {
  return str("channel/", options_.name, "/", rank);
}
std::string SharedMemoryChannel::failure_key(int rank) const { return rank_key(rank) + "/failure"; }

void SharedMemoryChannel::meet(Store& store, const PublishedMemory& own) {
  const Wait wait{Deadline::after(options_.timeout), nullptr};
  auto& own_file = *reinterpret_cast<RankFile*>(own.memory->data());
  store.set(rank_key(options_.rank), to_string(own.address));
  for (int r = 0; r < options_.size; ++r) {
    std::string announced;
    try {
      announced = store.get(rank_key(r), wait);
    } catch (const TimeoutError&) {
      const std::vector<int> missing =
          ranks_without_value(store, options_.size, [this](int rank) { return rank_key(rank); });
      throw TimeoutError(
          str("rank ", options_.rank, " waited ", to_string(options_.timeout), " for the channel '",
              options_.name, "' of ", options_.size, " ranks; missing: ", join(missing, ", ")),
          missing);
    }
    const SharedMemoryAddress address = parse_shared_memory_address(announced);
    try {
      files_.push_back(r == options_.rank ? own.memory : attach_shared_memory(address));
    } catch (const Error& e) {
      // Rank r may have failed already because of another rank, which is then at fault.
      throw_if_any_failed(look_at_peers());
      if (const auto left = find_failure(store, failure_key(r)))
        throw_failure(str(prefix(), "cannot begin, because rank ", r, " failed: "), *left);
      throw PeerLostError(str(prefix(), "cannot begin: rank ", r, " has ended: ", e.what()), {r});
    }
    ranks_.push_back(reinterpret_cast<RankFile*>(files_.back()->data()));
    pids_.push_back(address.pid);
    if (file(r).layout_bytes != RankFile::bytes(options_.size)) {
      throw Error(str("rank ", r,
                      " lays out its shared memory differently; do all ranks run the same version of "
                      "rondo, with the same world size?"));
    }
    if (r != options_.rank) watch_.add(r, address.pid);
    own_file.reached.store(static_cast<std::uint32_t>(r) + 1);
    file(r).attached.fetch_add(1);
    futex_wake_all(file(r).attached);
  }
  wait_until_attached(wait.deadline);
}

// Blocks until all ranks have mapped this rank's file; until then it must not leave.
void SharedMemoryChannel::wait_until_attached(const Deadline& deadline) {
  RankFile& own = file(options_.rank);
  while (true) {
    const std::uint32_t attached = own.attached.load();
    if (attached == static_cast<std::uint32_t>(options_.size)) return;
    throw_if_any_failed(look_at_peers());
    if (deadline.passed()) {
      std::vector<int> missing;
      for (int r = 0; r < options_.size; ++r) {
        if (file(r).reached.load() <= static_cast<std::uint32_t>(options_.rank)) missing.push_back(r);
      }
      throw TimeoutError(
          str(prefix(), "cannot begin: rank ", options_.rank, " waited ", to_string(options_.timeout),
              " for others to map its memory; missing: ", join(missing, ", ")),
          missing);
    }
    futex_wait(own.attached, attached, std::chrono::milliseconds(10));
  }
}

SharedMemoryChannel::~SharedMemoryChannel() {
  if (ranks_.size() != static_cast<std::size_t>(options_.size)) return;
  // A forked child must not mark its parent as left.
  if (getpid() != pids_[static_cast<std::size_t>(options_.rank)]) return;
  RankFile& own = file(options_.rank);
  if (own.state.load() == RankState::active) own.state.store(RankState::left);
  for (int r = 0; r < options_.size; ++r) notify(r);
}

void SharedMemoryChannel::notify(int peer) const {
  RankFile& other = file(peer);
  if (other.sleeping.load() == 0) return;
  other.wakeup.fetch_add(1);
  futex_wake_all(other.wakeup);
}

void SharedMemoryChannel::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                                   const Wait& wait) {
  RankFile& own = file(options_.rank);
  if (own.state.load(std::memory_order_relaxed) == RankState::failed) {
    throw_failure("an earlier exchange failed: ", {own.failure_kind, own.failure_blamed, own.failure_text});
  }
  Transfers transfers(*this, outgoing, incoming);
  try {
    check_peers_periodically(outgoing);
    run(transfers, wait);
  } catch (...) {
    // The published waits are kept, because other ranks may be about to follow them.
    own.sleeping.store(0);
    fail(std::current_exception());
    throw;
  }
}

// Checks the peers at intervals, for ranks that only send: otherwise they notice a failure only when a ring
// is full, after many small messages.
void SharedMemoryChannel::check_peers_periodically(std::span<const Outgoing> outgoing) {
  constexpr std::uint32_t kExchanges = 64;  // reading the clock has a cost
  if (++exchanges_ % kExchanges != 0 || Clock::now() < next_look_) return;
  next_look_ = Clock::now() + kPeerCheckInterval;
  Peers peers = look_at_peers();
  const auto gets_nothing = [&](int rank) {
    return std::none_of(outgoing.begin(), outgoing.end(),
                        [rank](const Outgoing& message) { return message.peer == rank; });
  };
  std::erase_if(peers.lost, gets_nothing);
  std::erase_if(peers.failed, gets_nothing);
  throw_if_any_failed(peers);
}

void SharedMemoryChannel::run(Transfers& transfers, const Wait& wait) {
  for (int i = 0; i < spin_limit_; ++i) {
    if (transfers.progress()) i = 0;
    if (transfers.done()) return;
    relax_processor();
  }
  const Deadline deadline = wait.deadline.is_never() ? Deadline::after(options_.timeout) : wait.deadline;
  const TimePoint began = Clock::now();
  TimePoint last_moved = began;
  TimePoint next_check = began + kPeerCheckInterval;
  RankFile& own = file(options_.rank);
  transfers.publish_waiting(true);
  while (true) {
    const TimePoint now = Clock::now();
    if (transfers.progress()) last_moved = now;
    if (transfers.done()) break;
    if (now - last_moved < kYieldTime) {
      sched_yield();
    } else {
      // Peers wake this rank after they publish and find `sleeping` set; checking again in between closes the
      // race.
      const std::uint32_t wakeup = own.wakeup.load();
      own.sleeping.store(1);
      const bool moved = transfers.progress();
      if (!moved) futex_wait(own.wakeup, wakeup, std::min<Duration>(kSleepTime, deadline.remaining()));
      own.sleeping.store(0);
      if (moved) last_moved = Clock::now();
    }
    if (wait.cancel != nullptr && wait.cancel->cancelled()) throw CancelledError(prefix() + "was cancelled");
    if (Clock::now() < next_check && !deadline.passed()) continue;
    next_check = Clock::now() + kPeerCheckInterval;
    // Publishes the waits again: an arrived message has cleared the mark of its peer, from which another
    // message may still be missing.
    transfers.publish_waiting(true);
    throw_if_peer_failed(transfers);
    if (transfers.done()) break;
    if (deadline.passed()) throw_timeout(Clock::now() - began);
  }
  transfers.publish_waiting(false);
}

SharedMemoryChannel::Peers SharedMemoryChannel::look_at_peers() const {
  Peers peers;
  // Checks processes first: a rank that leaves in an orderly way sets its state before its process ends.
  const std::vector<int> ended = watch_.ended();
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    const RankState state = file(r).state.load();
    if (r == options_.rank) continue;
    if (state == RankState::failed) peers.failed.push_back(r);
    if (state == RankState::left) peers.left.push_back(r);
    if (state == RankState::active && std::find(ended.begin(), ended.end(), r) != ended.end()) {
      peers.lost.push_back(r);
    }
  }
  return peers;
}

void SharedMemoryChannel::throw_if_any_failed(const Peers& peers) const {
  // The order in which several processes ended is unknown: names all of them.
  if (!peers.lost.empty()) {
    const bool one = peers.lost.size() == 1;
    std::vector<std::string> names;
    for (const int r : peers.lost) names.push_back(who(r));
    throw PeerLostError(
        str(prefix(), "cannot complete: the ", one ? "process of " : "processes of ", join(names, ", "),
            one ? " has ended. Its own output says why" : " have ended. Their own output says why",
            "; restart the job from the last checkpoint."),
        peers.lost);
  }
  for (const int r : peers.failed) {
    const RankFile& other = file(r);
    throw_failure(str(prefix(), "cannot complete, because ", who(r), " failed: "),
                  {other.failure_kind, other.failure_blamed, other.failure_text});
  }
}

void SharedMemoryChannel::throw_if_peer_failed(Transfers& transfers) const {
  const Peers peers = look_at_peers();
  // Data that a peer published before its process ended is still used.
  while (transfers.progress()) {
  }
  if (transfers.done()) return;
  if (options_.look) options_.look();
  throw_if_any_failed(peers);
  for (const int r : peers.left) {
    if (transfers.waits_for(r))
      throw PeerLostError(str(prefix(), "cannot complete: ", who(r), " has left"), {r});
  }
}

bool SharedMemoryChannel::waits_for(int rank, int peer) const {
  return ring(rank, peer).sender_waits.load() != 0 || ring(peer, rank).receiver_waits.load() != 0;
}

void SharedMemoryChannel::throw_timeout(Duration waited) const {
  const std::vector<int> stopped = watch_.stopped();
  const auto is_stopped = [&](int r) {
    return std::find(stopped.begin(), stopped.end(), r) != stopped.end();
  };
  const std::vector<int> culprits = find_culprits(
      options_.rank, options_.size, [this](int a, int b) { return waits_for(a, b); }, is_stopped);
  std::vector<std::string> names;
  for (const int r : culprits) names.push_back(who(r) + (is_stopped(r) ? ", stopped by a signal" : ""));
  throw TimeoutError(
      str(prefix(), "timed out after ", to_string(waited), "; all ranks wait for ", join(names, ", ")),
      culprits);
}

void SharedMemoryChannel::fail(const std::exception_ptr& error) {
  record(file(options_.rank), describe_failure(error, options_.rank));
  for (int r = 0; r < options_.size; ++r) notify(r);
}

void SharedMemoryChannel::record(RankFile& own, const ChannelFailure& failure) {
  own.failure_kind = failure.kind;
  own.failure_blamed = failure.blamed;
  const std::size_t length = std::min(failure.text.size(), sizeof(own.failure_text) - 1);
  std::memcpy(own.failure_text, failure.text.data(), length);
  own.failure_text[length] = '\0';
  own.state.store(RankState::failed);
}

std::string SharedMemoryChannel::who(int rank) const {
  return str("rank ", rank, " (pid ", pids_[static_cast<std::size_t>(rank)], ")");
}

std::string SharedMemoryChannel::prefix() const {
  return str("exchange on rank ", options_.rank, " of ", options_.size, " (shared memory, pid ", getpid(),
             ") ");
}

}  // namespace rondo
