#pragma once

#include "rondo/backend/context.h"
#include "rondo/format/trace.h"

namespace rondo {

// Measures the offset of rank 0's clock (monotonic_ns()) from this rank's. Ranks of one host share a clock,
// which the host's first rank measures. It requests rank 0's time repeatedly and uses the fastest reply; the
// error is half its round-trip time (Cristian, Probabilistic clock synchronization, 1989). Collective; call
// it on the communicating thread.
ClockReading read_clock(const Context& context);

}  // namespace rondo
