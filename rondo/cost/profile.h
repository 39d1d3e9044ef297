#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/cost/link.h"
#include "rondo/cost/strategy.h"

namespace rondo::cost {

// What one unit (a layer that is sharded and scheduled as a whole) costs on one rank, for the batch of one
// micro-batch. Seconds without communication, bytes unsharded.
struct UnitProfile {
  std::string name;
  double forward_s = 0;
  double backward_s = 0;
  double recompute_s = 0;  // forward once more, inside backward, when the unit is checkpointed
  double optimizer_s = 0;  // updating all of the unit's parameters on one rank
  std::uint64_t parameter_bytes = 0;
  std::uint64_t gradient_bytes = 0;
  std::uint64_t optimizer_bytes = 0;
  std::uint64_t activation_bytes = 0;               // kept from forward to backward
  std::uint64_t checkpointed_activation_bytes = 0;  // the same when the unit is checkpointed
  std::uint64_t forward_workspace_bytes = 0;        // alive in the unit's forward only
  std::uint64_t backward_workspace_bytes = 0;       // alive in the unit's backward only
  // What a plan may choose for this unit; all when empty.
  std::vector<Strategy> strategies;
};

// A model on a machine: what `rondo profile` measures and `rondo plan` reads. docs/planner.md describes the
// JSON.
struct Profile {
  std::string model;  // name of what was profiled; training compares it
  // Everything that what was measured depends on, in words: model, its settings, batch, optimizer, ranks.
  // Training compares it with its own; empty: not said.
  std::string made_for;
  std::uint64_t batch_size = 1;    // samples of one rank and micro-batch that times and activations are for
  std::uint64_t base_bytes = 0;    // alive all the time and in no unit: input batch, constant tensors
  std::vector<UnitProfile> units;  // in the order of forward
  Link link;
};

// The profile of a batch `factor` times as large: times of forward and backward, activations and workspaces
// grow with it, parameters and the optimizer's time do not.
Profile scaled_to_batch(const Profile& profile, double factor);

}  // namespace rondo::cost
