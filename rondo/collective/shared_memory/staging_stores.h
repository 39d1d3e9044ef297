#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "rondo/base/time.h"

namespace rondo::shared_memory {

// Copies `bytes` with stores that bypass the processor's caches, if it supports them; `to` must begin on a
// cache line. Call fence_streamed() before the store that publishes the data.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes);

// Orders the stores of stream_copy() before later stores. A release store alone does not.
void fence_streamed();

// Phases of a chunk's transfer through staging on one rank: writing its data, reducing its slice, reading the
// slices that peers have reduced.
enum class StagingPhase : std::uint8_t { copy, reduce, fetch };

// Decides how a rank writes the staging buffers that its peers read.
//
// A store to a line that a peer has read must first invalidate the peer's copy. Between processors that share
// a cache this is cheap, and the peer then reads the line from that cache; between others it takes so long
// that streaming past the caches is several times as fast. No interface reports the distance reliably, and
// virtual processors move, so some groups of tickets measure one of the two kinds of stores. In these groups
// all ranks use the same kind, so that the time of reading a peer's streamed data is included; times do not
// include waiting. For all other tickets, each rank uses the kind whose phases were faster.
//
// Ranks need not decide alike. Not thread-safe; the engine's lock protects it.
class StagingStores {
 public:
  // Returns whether to stream the chunk with this ticket. `chunks` is the number of chunks of its operation:
  // a single chunk leaves staging in the caches until the next operation, several replace each other there.
  bool streams(std::uint64_t ticket, std::uint64_t chunks) const;
  // Returns whether the chunk is measured; only measured chunks read the clock.
  bool measures(std::uint64_t ticket, std::uint64_t chunks) const;
  // Reports the time of a phase of the chunk, which has `bytes`. Only chunks of measuring groups count.
  void add(StagingPhase phase, std::uint64_t ticket, std::uint64_t chunks, std::size_t bytes, Duration time);

 private:
  // Averages of the measured chunks that were written in one way.
  struct Way {
    std::array<double, 3> phases = {};  // ns per cache line of the chunk
    std::uint64_t chunks = 0;           // number of measured chunks, up to the number that suffices
    bool measured() const;
    double total() const;
  };
  struct Times {
    Way cached;
    Way streamed;
  };
  // Returns whether the ticket's chunk is to measure streaming or normal stores; nothing if it measures
  // neither. The first groups of eight tickets measure, and then two of 128, in no regular order: operations
  // often repeat in a period.
  static std::optional<bool> measured_way(std::uint64_t ticket, const Times& times);

  Times single_;
  Times several_;
};

}  // namespace rondo::shared_memory
