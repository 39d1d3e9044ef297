#pragma once

#include <cstdint>
#include <vector>

namespace rondo::plan {

// A layer whose activations may be computed again.
struct Recomputation {
  double seconds = 0;             // that it costs
  std::uint64_t saved_bytes = 0;  // that it saves
};

// Which of them, by number, save at least `need` bytes in the least time: exact, a knapsack over the classes
// of those that save the same. All of them where even these are too few.
std::vector<std::size_t> cheapest_recomputation(const std::vector<Recomputation>& layers, std::uint64_t need);

}  // namespace rondo::plan
