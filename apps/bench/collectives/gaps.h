#pragma once

#include "rondo/base/time.h"

namespace rondo::bench {

// What a processor lost to others while it was watched.
struct Gaps {
  double longest_us = 0;  // longest time between two readings of the clock
  double lost = 0;        // share of the time in gaps longer than 20 us
};

// Reads the clock without pause for `duration`. On an undisturbed core the readings are some 30 ns apart; a
// gap is time that the system, a hypervisor or another process took. Figures measured beside large gaps
// deserve no trust.
Gaps watch_for_gaps(Duration duration);

}  // namespace rondo::bench
