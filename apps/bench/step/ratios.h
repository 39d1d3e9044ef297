#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "apps/bench/step/contest.h"

namespace rondo::bench {

using Json = nlohmann::ordered_json;

// What the project promises, and what else is worth comparing, for those who took part in one comparison:
// objects {ratio, model, dtype, of, to, value, goal, better}. `better` is "higher" or "lower"; a ratio
// without a goal is for information. Those of speed have `by`, "p50" or "min" (rondo/base/peer_ratio.h).
Json ratios(const StepCase& training, const Network& network, const std::vector<Contestant>& contestants);

// The same between the comparisons of one run: bfloat16 to float32, and which policies of the scheduler never
// won. `rows` are all rows so far.
Json ratios_between_cases(const Json& rows);

}  // namespace rondo::bench
