#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rondo/collective/chooser/chooser.h"

namespace rondo::bench {

// What the chooser can pick by, from rows of the JSON: rondo's engine on ordinary memory and its plans, over
// shared memory.
collective::Tuning tuning_from(const nlohmann::ordered_json& rows);

// What two measurements of the same cells agree in: of the engine the better figure, of algorithms the worse.
// One that is picked by it was faster twice.
collective::Tuning confirmed(collective::Tuning first, const collective::Tuning& second);

// Sets "chosen" (the chooser's pick), "best" (the shortest p50) and "ratio_to_best" in the rows that compete
// with each other: those of tuning_from() of one operation, size and number of ranks.
void mark_choices(nlohmann::ordered_json& rows, const collective::Chooser& chooser);

// One line an operation, size and number of ranks: what is picked and why. Then how far the picks are from
// the best.
std::string describe_choices(const nlohmann::ordered_json& rows, const collective::Chooser& chooser);

}  // namespace rondo::bench
