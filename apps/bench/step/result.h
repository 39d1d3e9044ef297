#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "apps/bench/step/contest.h"
#include "apps/bench/step/ratios.h"

namespace rondo::bench {

// One object a contestant with the keys that docs/cli.md lists, then the ratios between them. `losses` adds
// every step's loss, averaged over ranks.
Json step_results(const StepCase& training, const Network& network,
                  const std::vector<Contestant>& contestants, bool losses);

// The same for people.
void print_results(const Json& results);

}  // namespace rondo::bench
