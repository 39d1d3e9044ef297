#pragma once

#include "rondo/backend/context.h"
#include "rondo/format/trace.h"

namespace rondo {

// How far rank 0's clock (monotonic_ns()) is ahead of this rank's. Ranks of one host have one clock, which
// its first rank reads: it asks rank 0 for the time again and again, and the answer that came soonest tells,
// half of its way back and forth being the error (Cristian, Probabilistic clock synchronization, 1989).
// Called by all ranks at once, from the thread that communicates.
ClockReading read_clock(const Context& context);

}  // namespace rondo
