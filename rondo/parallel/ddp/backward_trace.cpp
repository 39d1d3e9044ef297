#include "rondo/parallel/ddp/backward_trace.h"

#include "rondo/format/compute_timeline.h"

namespace rondo {

Duration communication_time(const BackwardTrace& trace) {
  // No bucket leaves before that wait is over.
  return time_under_way(trace.buckets) +
         std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(trace.waited_ns));
}

Duration exposed_communication_time(const BackwardTrace& trace) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::nanoseconds(trace.end_ns - trace.backward_end_ns + trace.waited_ns));
}

}  // namespace rondo
