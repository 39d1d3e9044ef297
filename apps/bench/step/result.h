#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "apps/bench/step/contest.h"

namespace rondo::bench {

using Json = nlohmann::ordered_json;

// One object a contestant with the keys that docs/cli.md lists, then the ratios that the project promises for
// the contestants that took part. `losses` adds every step's loss, averaged over ranks.
Json step_results(const StepCase& training, const std::vector<Contestant>& contestants, bool losses);

// The same for people.
void print_results(const Json& results);

}  // namespace rondo::bench
