#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rondo/channel/channel.h"
#include "rondo/channel/failure.h"
#include "rondo/collective/request.h"

// The shared-memory file that every rank of a group owns and all others map.
//
// Progress is published in a few counters, each written by one rank only and read by all. Publishing stores
// and the loads that look for them are sequentially consistent: a rank about to sleep first says so
// (`sleeping`) and then looks once more, a publisher first publishes and then looks who sleeps; with any
// weaker order both could miss the other. The same stores release the plain data written before them.
namespace rondo::shared_memory {

constexpr std::size_t kCacheLine = 64;
// Operations a rank may be ahead of the slowest one.
constexpr std::uint64_t kSlots = 64;
// Payloads up to this size travel inside the slot.
constexpr std::size_t kInlineBytes = 64;
// Payloads up to this size are reduced by every rank on its own: one wait instead of two.
constexpr std::size_t kOnePhaseBytes = std::size_t{16} << 10;
// Registered buffers of less are copied all the same: the second wait takes longer than the copies.
constexpr std::size_t kInPlaceBytes = std::size_t{2} << 10;
// A chunk fits the second-level cache together with its copies.
constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
// Staging buffers of a rank; a rank may copy this many chunks ahead.
constexpr std::uint64_t kStagingChunks = 4;
constexpr std::size_t kMessageRingBytes = std::size_t{128} << 10;

// What a rank says of one operation; compared between ranks before any data is touched.
struct OperationHeader {
  OperationKind kind;
  DType type;
  Reduction reduction;
  std::uint8_t weighted : 1;
  std::uint8_t by_plan : 1;  // announces a call whose data the engine does not move
  std::uint8_t call : 6;     // a CollectiveCall
  std::int32_t root;
  std::uint64_t elements;
  // Position of the registered input in the owner's arena, or kNotRegistered: then the data goes through
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

enum class RankState : std::uint32_t { connecting, active, left, failed };

// A byte stream from one rank to another, in the receiver's file.
struct MessageRing {
  alignas(kCacheLine) std::atomic<std::uint64_t> written;  // by the sender
  alignas(kCacheLine) std::atomic<std::uint64_t> read;     // by the receiver
  alignas(kCacheLine) std::byte data[kMessageRingBytes];
};

struct RankSegment {
  std::uint64_t nonce;  // set by publish_shared_memory
  std::uint64_t layout_bytes;
  std::atomic<std::uint32_t> attached;  // peers that have mapped this file
  std::atomic<std::uint32_t> reached;   // ranks, in order, whose files the owner has mapped
  std::atomic<std::uint32_t> joined;    // 1 once the owner needs the rendezvous's store no more
  std::atomic<RankState> state;
  // Why, once state is failed.
  ChannelFailure::Kind failure_kind;
  std::int32_t failure_blamed;
  char failure_text[1024];

  // Tickets count the chunks of all operations; every rank computes the same ticket numbers.
  alignas(kCacheLine) std::atomic<std::uint64_t> published;  // chunks whose data is in staging
  alignas(kCacheLine) std::atomic<std::uint64_t> reduced;  // chunks this rank has read from all, and reduced
  std::atomic<std::uint64_t> consumed;                     // chunks this rank needs nothing more of

  alignas(kCacheLine) std::atomic<std::uint32_t> sleeping;  // threads of the owner that are about to sleep
  std::atomic<std::uint32_t> wakeup;                        // futex they sleep on

  // Not zero while the owner reads or writes the registered memory of others. A rank that gives up says so in
  // its state and then waits for this; a rank that goes on sets this and then looks at the states. So one of
  // the two sees the other, and memory is not freed under a peer's hands.
  alignas(kCacheLine) std::atomic<std::uint32_t> touching;

  // Numbers of monitored barriers: the last one that the owner has come to and, on rank 0, the last one that
  // it has judged and the last one that it let all pass.
  alignas(kCacheLine) std::atomic<std::uint64_t> barrier_arrived;
  std::atomic<std::uint64_t> barrier_judged;
  std::atomic<std::uint64_t> barrier_passed;

  Slot slots[kSlots];
  alignas(4096) std::byte staging[kStagingChunks * kChunkBytes];
  // One ring a peer follows.

  MessageRing& ring_from(int source) { return reinterpret_cast<MessageRing*>(this + 1)[source]; }
  static std::size_t bytes(int size) {
    return sizeof(RankSegment) + static_cast<std::size_t>(size) * sizeof(MessageRing);
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<RankState>::is_always_lock_free);
static_assert(sizeof(RankSegment) % alignof(MessageRing) == 0);

}  // namespace rondo::shared_memory
