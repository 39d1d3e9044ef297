#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rondo/channel/channel.h"
#include "rondo/channel/failure.h"
#include "rondo/collective/request.h"

// The shared-memory file that every rank of a group owns and all others map.
//
// A few counters publish progress; one rank writes each of them and all read it. Publishing stores release
// the plain data written before them, and the loads that check for them acquire it. They need no order among
// each other, but a publisher and a rank about to sleep must not miss each other: the one publishes and then
// reads `sleeping`, the other sets `sleeping` and then checks once more. So Peers::notify_peers() begins with
// a sequentially consistent fence, and `sleeping` and the loads of the check are sequentially consistent: if
// the publisher reads the old `sleeping`, its fence precedes the change of `sleeping` in their total order,
// and the later check reads what was published before the fence. One fence per step replaces one per store,
// which would wait until each cache line has come back from the peers.
namespace rondo::shared_memory {

constexpr std::size_t kCacheLine = 64;
// Number of operations that a rank may be ahead of the slowest one.
constexpr std::uint64_t kSlots = 64;
// Largest payload inside a slot.
constexpr std::size_t kInlineBytes = 64;
// Largest payload that every rank reduces itself: for a smaller one the second wait of the other paths takes
// longer than the copies.
constexpr std::size_t kOnePhaseBytes = std::size_t{2} << 10;
// Size of a chunk, which fits the second-level cache together with its copies.
constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
// Number of staging buffers of a rank, which may copy this many chunks ahead.
constexpr std::uint64_t kStagingChunks = 4;
constexpr std::size_t kMessageRingBytes = std::size_t{128} << 10;

// Description of an operation, which ranks compare before they access any data.
struct OperationHeader {
  OperationKind kind;
  DType type;
  Reduction reduction;
  std::uint8_t weighted : 1;
  std::uint8_t by_schedule : 1;  // announces a call whose data the engine does not move
  std::uint8_t call : 6;         // a CollectiveCall
  std::int32_t root;
  std::uint64_t elements;
  // Offset of the registered input in the owner's arena, or kNotRegistered: then the data goes through
  // staging.
  std::uint64_t arena_offset;
  double weight;
};
constexpr std::uint64_t kNotRegistered = ~std::uint64_t{0};

struct alignas(kCacheLine) Slot {
  // Sequence number of the operation + 1, once the rest of the slot is valid.
  std::atomic<std::uint64_t> sequence;
  OperationHeader header;
  std::byte payload[kInlineBytes];
};

// Requests a cache line in order to write to it soon, or to keep other processors from having to give it up
// then. A hint: may be called with any address. Assembly, because compilers request the line for reading
// where they may not assume the instruction, which other x86-64 processors ignore, and drop functions that
// only prefetch.
inline void prefetch_to_write(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw (%0)" : : "r"(address));
#else
  __builtin_prefetch(address, 1);
#endif
}

enum class RankState : std::uint32_t { connecting, active, left, failed };

// A byte stream from one rank to another, in the receiver's file.
struct MessageRing {
  alignas(kCacheLine) std::atomic<std::uint64_t> written;  // written by the sender
  alignas(kCacheLine) std::atomic<std::uint64_t> read;     // written by the receiver
  alignas(kCacheLine) std::byte data[kMessageRingBytes];
};

struct RankSegment {
  std::uint64_t nonce;  // set by publish_shared_memory
  std::uint64_t layout_bytes;
  std::atomic<std::uint32_t> attached;  // peers that have mapped this file
  std::atomic<std::uint32_t> reached;   // ranks, in order, whose files the owner has mapped
  std::atomic<std::uint32_t> joined;    // 1 after the owner's last use of the rendezvous's store
  std::atomic<RankState> state;
  // The reason, if state is failed.
  ChannelFailure::Kind failure_kind;
  std::int32_t failure_blamed;
  char failure_text[1024];

  // Tickets count the chunks of all operations; every rank computes the same ticket numbers.
  alignas(kCacheLine) std::atomic<std::uint64_t> published;  // chunks whose data is in staging
  alignas(kCacheLine) std::atomic<std::uint64_t> reduced;  // chunks this rank has read from all, and reduced
  std::atomic<std::uint64_t> consumed;                     // chunks that this rank no longer needs

  alignas(kCacheLine) std::atomic<std::uint32_t> sleeping;  // threads of the owner that are about to sleep
  std::atomic<std::uint32_t> wakeup;                        // futex on which those threads sleep

  // Nonzero while the owner accesses registered memory of others. A rank that fails sets its state and then
  // waits until this is zero; a running rank sets this and then reads the states. So one of the two sees the
  // other's store, and memory is not freed while a peer uses it.
  alignas(kCacheLine) std::atomic<std::uint32_t> touching;

  // Numbers of monitored barriers: the last one that the owner has reached and, on rank 0, the last one with
  // a decision and the last one that all ranks passed.
  alignas(kCacheLine) std::atomic<std::uint64_t> barrier_arrived;
  std::atomic<std::uint64_t> barrier_judged;
  std::atomic<std::uint64_t> barrier_passed;

  Slot slots[kSlots];
  alignas(4096) std::byte staging[kStagingChunks * kChunkBytes];
  // Returns the ring from rank `source`. One ring per peer follows this object.

  MessageRing& ring_from(int source) { return reinterpret_cast<MessageRing*>(this + 1)[source]; }
  static std::size_t bytes(int size) {
    return sizeof(RankSegment) + static_cast<std::size_t>(size) * sizeof(MessageRing);
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<RankState>::is_always_lock_free);
static_assert(sizeof(RankSegment) % alignof(MessageRing) == 0);

}  // namespace rondo::shared_memory
