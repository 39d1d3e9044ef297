#pragma once

#include <nlohmann/json.hpp>

#include "apps/bench/collectives/settings.h"

namespace rondo::bench {

// Starts the ranks, as processes or as threads by the channels, for one number of ranks after the other.
// Rank 0 prints the table where there is one. Returns the rows of the JSON.
nlohmann::ordered_json measure_collectives(const CollectivesSettings& settings);

}  // namespace rondo::bench
