#pragma once

#include <string>
#include <vector>

#include "rondo/parallel/ddp/ddp.h"

namespace rondo {

// Continues from what communication_state() gave on every rank, in rank order. Returns why the state was not
// taken, as "is of 3 ranks, this run has 2"; empty when it was. Communicates nothing.
std::string restore_communication(DistributedDataParallel& ddp, const std::vector<CommState>& of_ranks);

}  // namespace rondo
