#pragma once

#include <vector>

#include "rondo/base/time.h"
#include "rondo/format/trace_span.h"

namespace rondo {

// One synchronised backward pass on this rank; times in monotonic_ns().
struct BackwardTrace {
  std::int64_t first_gradient_ns = 0;  // the first gradient was there
  // The backward pass itself was over; what follows is communication that nothing hid.
  std::int64_t backward_end_ns = 0;
  std::int64_t end_ns = 0;     // gradients are synchronised
  std::int64_t waited_ns = 0;  // within the backward pass, for ranks whose forward pass was not over
  // In order of reduction. A bucket is queued when its last gradient has come. Where the engine does not tell
  // when it is finished, that was seen at the next gradient or at the end of backward, so not before that.
  std::vector<TraceSpan> buckets = {};
};

// Time in which at least one bucket was in flight, or the pass waited for another rank's forward pass.
Duration communication_time(const BackwardTrace& trace);

// Time between the end of backward and the last synchronised gradient, and what the pass waited before.
Duration exposed_communication_time(const BackwardTrace& trace);

}  // namespace rondo
