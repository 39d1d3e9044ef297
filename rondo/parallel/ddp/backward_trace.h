#pragma once

#include <vector>

#include "rondo/base/time.h"
#include "rondo/format/trace_span.h"

namespace rondo {

// Times of one synchronised backward pass on this rank, as monotonic_ns().
struct BackwardTrace {
  std::int64_t first_gradient_ns = 0;  // when the first gradient was ready
  // End of the backward pass itself; communication after it is not overlapped.
  std::int64_t backward_end_ns = 0;
  std::int64_t end_ns = 0;  // when all gradients were synchronised
  // time in which the backward pass waited for ranks that had not finished their forward pass
  std::int64_t waited_ns = 0;
  // Spans in order of reduction. A bucket is queued when its last gradient is ready. If the engine does not
  // report the end of an operation, it is observed at the next gradient or at the end of backward, so it may
  // be late.
  std::vector<TraceSpan> buckets = {};
};

// Returns the time in which at least one bucket was in flight, or the pass waited for another rank's forward
// pass.
Duration communication_time(const BackwardTrace& trace);

// Returns the time between the end of backward and the last synchronised gradient, plus
// BackwardTrace::waited_ns.
Duration exposed_communication_time(const BackwardTrace& trace);

}  // namespace rondo
