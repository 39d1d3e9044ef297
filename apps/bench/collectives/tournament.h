#pragma once

#include <memory>
#include <vector>

#include "apps/bench/collectives/contender.h"
#include "apps/bench/collectives/result.h"
#include "rondo/backend/group.h"
#include "rondo/base/time.h"

namespace rondo::bench {

// How long everything is measured.
struct Effort {
  int bursts = 7;                                      // turns of each contender
  Duration burst = std::chrono::milliseconds(10);      // aimed-at length of a turn
  Duration gap_watch = std::chrono::milliseconds(10);  // length of the watch before each case
  // Who takes more than this many times as long as the fastest in the first turn has no further ones; 0: all
  // have all.
  double hopeless = 0;
};

// Runs the contenders on one case in turns: a burst of each, then again, so that what disturbs the machine
// for a while disturbs all of them. Collective over `group`, which also agrees on the numbers; the rows are
// complete on every rank. Contenders that do not have the operation are left out.
std::vector<Row> run_case(const Case& what, const std::vector<std::unique_ptr<Contender>>& contenders,
                          const Effort& effort, const Group& group);

}  // namespace rondo::bench
