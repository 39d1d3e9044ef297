#pragma once

#include <vector>

#include "rondo/backend/group.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// On rank 0 what every rank gave, in rank order; elsewhere nothing, and nothing at all when no rank has
// anything. Names, shapes and dtypes may differ between ranks. Collective; takes the bytes of all ranks'
// states in memory of rank 0.
std::vector<CommunicationState> gather_states(const CommunicationState& own, const Group& group);

}  // namespace rondo
