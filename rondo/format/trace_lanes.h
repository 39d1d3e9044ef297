#pragma once

#include <span>
#include <vector>

#include "rondo/format/trace.h"

namespace rondo {

// Operations of a rank that are under way at the same time cannot be drawn on top of each other: for each of
// `events` (by begin time) a place, 0 and up, so that communication of one rank in one place never overlaps.
// Events of the compute lane lie in each other and all have place 0.
std::vector<int> places_in_lanes(std::span<const Trace::Event> events);

}  // namespace rondo
