#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rondo/format/trace.h"

namespace rondo {

// The communication of one unit in one step on one rank. Times are in nanoseconds, and those of blocks under
// way side by side count once.
struct UnitBlocks {
  int rank = 0;
  std::string unit = {};  // or "bucket 3", of gradients that belong to no single unit
  std::size_t blocks = 0;
  std::uint64_t bytes = 0;
  std::int64_t queued_ns = 0;   // at least one block waited in the queue
  std::int64_t link_ns = 0;     // at least one was under way
  std::int64_t exposed_ns = 0;  // computation stood still
  // What was computed while at least one was under way, longest first.
  std::vector<std::pair<std::string, std::int64_t>> overlapped = {};
};

// By rank, then in the order in which the units began.
std::vector<UnitBlocks> blocks_by_unit(const Trace& trace, std::int64_t step);

}  // namespace rondo
