#include "rondo/parallel/ddp/backward_trace.h"

#include <algorithm>

namespace rondo {

Duration communication_time(const BackwardTrace& trace) {
  // Buckets are launched in order, so their intervals merge in one pass.
  long long busy = 0;
  long long covered_until = 0;
  for (const BucketTrace& bucket : trace.buckets) {
    const long long begin = std::max(bucket.launched_ns, covered_until);
    busy += std::max(0LL, bucket.finished_ns - begin);
    covered_until = std::max(covered_until, bucket.finished_ns);
  }
  return std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(busy));
}

Duration exposed_communication_time(const BackwardTrace& trace) {
  return std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(trace.end_ns - trace.backward_end_ns));
}

}  // namespace rondo
