#pragma once

#include <vector>

#include "rondo/collective/plan.h"

namespace rondo::collective {

// Proves that the plans of all ranks of one collective work together, by running them on symbols: every
// element is the set of ranks whose contribution it holds.
//
// Shown: every message meets its counterpart of the same size in the same round; nobody waits for ever, even
// if a send completes only when its receiver has taken all of it (so no channel needs to buffer anything);
// within a round nothing is read or written that another transfer of the round writes; nothing is read before
// something was written there; and every element of the result holds every rank's contribution exactly once.
// Throws Error that names the rank, the round and the step otherwise. Cost: elements x steps.
void check_plans(const std::vector<Plan>& plans);

}  // namespace rondo::collective
