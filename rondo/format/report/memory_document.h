#pragma once

#include <nlohmann/json.hpp>

#include "rondo/format/report/run_data.h"

namespace rondo {

// What the report draws of memory: {categories: [name], step, timelines: [{rank, peak, samples: [[ms, bytes
// of each category]]}], peaks: [{rank, bytes, step, phase, unit, units: [[name, bytes of each category]]}]}.
// Units come with the largest first; what is too much to draw is one entry, "N more".
nlohmann::ordered_json memory_document(const RunData& run);

}  // namespace rondo
