#pragma once

#include <nlohmann/json.hpp>

namespace rondo::bench {

// One line for a row {"ratio", "of", "to", "value", "goal", "better"} of results, its name in `width`
// columns: the ratio, and the goal with whether it is met, where there is one. A ratio "by" minima has a "*".
void print_ratio(const nlohmann::ordered_json& row, int width);

}  // namespace rondo::bench
