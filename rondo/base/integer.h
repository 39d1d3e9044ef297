#pragma once

#include <cstdint>

namespace rondo {

// The least number of groups of `by` that hold `value`; both positive, or `value` 0.
constexpr std::int64_t divide_rounding_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace rondo
