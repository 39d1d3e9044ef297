#pragma once

#include <cstddef>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/base/time.h"

namespace rondo {

// One bucket's way through a backward pass, in monotonic_ns().
struct BucketTrace {
  std::size_t parameters = 0;
  Bytes bytes = {};
  long long ready_ns = 0;     // its last gradient arrived
  long long launched_ns = 0;  // its reduction was started
  // Its reduction was seen to be finished: at the next gradient or at the end of backward, so not before
  // that.
  long long finished_ns = 0;
  // The training thread waited for it: since when, and how long.
  long long waited_ns = 0;
  long long exposed_ns = 0;
};

// One synchronised backward pass on this rank.
struct BackwardTrace {
  long long first_gradient_ns = 0;
  // The backward pass itself was over; what follows is communication that nothing hid.
  long long backward_end_ns = 0;
  // Gradients are synchronised.
  long long end_ns = 0;
  std::vector<BucketTrace> buckets;  // in order of reduction
};

// Time in which at least one bucket was in flight.
Duration communication_time(const BackwardTrace& trace);

// Time between the end of backward and the last synchronised gradient.
Duration exposed_communication_time(const BackwardTrace& trace);

}  // namespace rondo
