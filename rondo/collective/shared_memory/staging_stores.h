#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rondo/base/time.h"

namespace rondo::shared_memory {

// Copies `bytes` with stores that bypass the caches of this processor, where it has them; `to` must begin on
// a cache line. Call fence_streamed() before the store that publishes the data.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes);

// Orders the stores of stream_copy() before later stores. A release store alone does not.
void fence_streamed();

// Parts of a chunk's way through staging on one rank: writing the own data, reducing the own slice, reading
// the slices that peers have reduced.
enum class StagingPhase : std::uint8_t { copy, reduce, fetch };

// Decides how a rank writes the staging buffers that its peers read.
//
// A store to a line that a peer has read must first invalidate the peer's copy. Between processors that share
// a cache this is cheap, and the peer then reads the line from that cache; between others it takes so long
// that streaming past the caches is several times as fast. No interface reports the distance reliably, and
// virtual processors move, so each rank measures all phases, which do not include waiting: it takes the
// faster way, and tries the other one for some groups of tickets. All ranks try it for the same ones, so that
// reading what a peer has streamed counts as well.
//
// Ranks need not decide alike. Not thread-safe; the engine's lock protects it.
class StagingStores {
 public:
  // Returns whether to stream the chunk with this ticket. `chunks` is the number of chunks of its operation:
  // a single chunk leaves staging in the caches until the next operation, several replace each other there.
  bool streams(std::uint64_t ticket, std::uint64_t chunks) const;
  // Reports the time of a phase of the chunk, which has `bytes`.
  void add(StagingPhase phase, std::uint64_t ticket, std::uint64_t chunks, std::size_t bytes, Duration time);

 private:
  // Times of the phases in ns per cache line of the chunk; 0 before the first measurement.
  using PhaseTimes = std::array<double, 3>;
  struct Times {
    PhaseTimes cached = {};
    PhaseTimes streamed = {};
    bool prefers_streaming() const;
  };
  // Returns true for one group of eight tickets in 128, in no regular order: operations often repeat in a
  // period.
  static bool probes(std::uint64_t ticket);

  Times single_;
  Times several_;
};

}  // namespace rondo::shared_memory
