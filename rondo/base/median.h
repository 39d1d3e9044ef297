#pragma once

#include <vector>

namespace rondo {

// The value in the middle, of an even number of values the larger of the two; 0 of none.
double median(std::vector<double> values);

}  // namespace rondo
