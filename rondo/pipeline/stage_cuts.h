#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::pipeline {

// Costs of a model's unit for cutting the model into stages.
struct UnitCost {
  double seconds = 0;                  // forward and backward of a micro-batch
  std::uint64_t state_bytes = 0;       // parameters, gradients and optimizer state
  std::uint64_t activation_bytes = 0;  // per micro-batch, from forward to backward
};

// Cuts the units, in order, into `stages` stages of at least one unit so that the slowest stage takes the
// least time. Exact, by dynamic programming; ties go to the cut with less memory. `alive` is the number of
// micro-batches' activations that each stage holds at a time. No stage has more than `limit` bytes; 0: no
// limit. Returns the first unit of each stage. Throws UsageError for fewer units than stages, and if nothing
// fits the limit.
std::vector<int> balanced_cuts(const std::vector<UnitCost>& units, int stages,
                               const std::vector<int>& alive = {}, std::uint64_t limit = 0);

// Cuts by name: `cuts` names the first unit of every stage except the first, in order. Throws UsageError for
// a name that is no unit, and for another number of cuts or another order.
std::vector<int> cuts_at(const std::vector<std::string>& units, const std::vector<std::string>& cuts,
                         int stages);

}  // namespace rondo::pipeline
