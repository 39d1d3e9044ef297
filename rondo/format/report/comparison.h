#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "rondo/format/report/run_data.h"

namespace rondo {

// What the page draws of several runs beside each other: {title, comparison: {runs: [{name, strategy,
// command, summary, curves: {loss, validation_loss, rate}}], differences: [[key, value of each run]]},
// notes}. A run's name is its directory's last part, or as much more as makes names differ. Differences are
// of the configurations, a key that a run lacks is null.
nlohmann::ordered_json comparison_document(std::span<const RunData> runs);

}  // namespace rondo
