#pragma once

#include <cstddef>
#include <cstdint>

#include "rondo/base/time.h"

namespace rondo::shared_memory {

// Copies `bytes` with stores that bypass the caches of this processor, where it has them; `to` must begin on
// a cache line. Call fence_streamed() before the store that publishes the data.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes);

// Orders the stores of stream_copy() before later stores. A release store alone does not.
void fence_streamed();

// Decides how a rank writes the staging buffers that its peers read.
//
// A store to a line that a peer has read must first invalidate the peer's copy. Between processors that share
// a cache this is cheap, and the peer then reads the line from that cache; between others it takes so long
// that streaming past the caches is several times as fast. No interface reports the distance reliably, and
// virtual processors move, so each rank measures its copies into staging: it takes the faster way, and tries
// the other one for some groups of tickets.
//
// This holds for operations of one chunk. Several chunks are never streamed: between processors that share a
// cache, peers lose more by reading them from memory than the copy gains (1 MiB takes 100 us instead of 48),
// and the time of the copy alone does not show it.
//
// Ranks need not decide alike. Not thread-safe; the engine's lock protects it.
class StagingStores {
 public:
  // Returns whether to stream the chunk with this ticket, of an operation of `chunks` chunks.
  bool streams(std::uint64_t ticket, std::uint64_t chunks) const;
  // Reports the time of copying `bytes` of the chunk into staging.
  void add(std::uint64_t ticket, std::uint64_t chunks, std::size_t bytes, Duration time);

 private:
  // Times in ns per cache line; 0 before the first measurement.
  struct Times {
    double cached = 0;
    double streamed = 0;
    bool prefers_streaming() const;
  };
  // Returns true for one group of eight tickets in 128, in no regular order: operations often repeat in a
  // period.
  static bool probes(std::uint64_t ticket);

  Times times_;
};

}  // namespace rondo::shared_memory
