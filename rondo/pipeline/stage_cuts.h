#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::pipeline {

// A unit of a model, as far as cutting it into stages needs it.
struct UnitCost {
  double seconds = 0;                  // forward and backward of a micro-batch
  std::uint64_t state_bytes = 0;       // parameters, gradients and what the optimizer remembers
  std::uint64_t activation_bytes = 0;  // of a micro-batch, from forward until backward
};

// Cuts the units, in their order, into `stages` stages of at least one unit such that the slowest takes as
// little time as possible, exactly, by dynamic programming; ties go to what has less
// memory. `alive` is how many micro-batches' activations each stage holds at a time, and no stage has
// more than `limit` bytes; 0 is no limit. The result is the first unit of each stage. Throws UsageError for
// fewer units than stages, and where nothing fits the limit.
std::vector<int> balanced_cuts(const std::vector<UnitCost>& units, int stages,
                               const std::vector<int>& alive = {}, std::uint64_t limit = 0);

// The same by hand: `cuts` names the first unit of every stage but the first, in order. Throws UsageError
// naming what is not a unit, and for another number of cuts or order.
std::vector<int> cuts_at(const std::vector<std::string>& units, const std::vector<std::string>& cuts,
                         int stages);

}  // namespace rondo::pipeline
