#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rondo {

// What was in use at a moment: one curve for each of the values, stacked, above the rank's lanes.
struct TraceCounter {
  std::string name;                                           // "memory"
  std::int64_t time_ns = 0;                                   // as TraceSpan::begin_ns
  std::optional<std::int64_t> step;                           // of the training, counted from 1
  std::vector<std::pair<std::string, std::uint64_t>> values;  // by what it was used for, in bytes
};

}  // namespace rondo
