#pragma once

#include <nlohmann/json.hpp>

#include "apps/bench/collectives/settings.h"

namespace rondo::bench {

// Marks what the chooser picks, by the figures just taken (--tune, which also keeps them) or by those kept
// before. With --check-chooser the rows are measured anew first: figures by which nothing was picked.
void choose(nlohmann::ordered_json& rows, const CollectivesSettings& settings);

}  // namespace rondo::bench
