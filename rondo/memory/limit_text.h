#pragma once

#include <string>

#include "rondo/base/bytes.h"
#include "rondo/memory/tracker.h"

namespace rondo {

// What MemoryLimitError says: the allocation that found no room, what is alive by category and by unit, the
// largest first, and what helps against the largest.
std::string limit_text(Bytes wanted, MemoryLabel label, const MemoryMoment& moment, Bytes limit,
                       const MemoryUsage& alive);

}  // namespace rondo
