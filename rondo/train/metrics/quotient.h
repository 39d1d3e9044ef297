#pragma once

#include <span>

#include "rondo/train/metric.h"

namespace rondo {

// The first total divided by the second; NaN where that is 0.
double quotient(std::span<const double> totals);

}  // namespace rondo
