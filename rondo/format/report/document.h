#pragma once

#include <nlohmann/json.hpp>

#include "rondo/format/report/run_data.h"

namespace rondo {

// The figures of a run: run, ranks, steps, epochs, elapsed_s, final_loss, best_validation_loss, rate and
// rate_unit (median over steps), exposed_comm_share, peak_bytes (largest rank). What is not known is null.
nlohmann::ordered_json summarize(const RunData& run);

// Everything the report page draws, curves downsampled: {title, summary, config: [[key, value]], notes,
// curves: {...}, split: [...], timelines: [...]}. apps/report/page reads it.
nlohmann::ordered_json report_document(const RunData& run);

// What the report draws of memory: {categories: [name], step, timelines: [{rank, peak, samples: [[ms, bytes
// of each category]]}], peaks: [{rank, bytes, step, phase, unit, units: [[name, bytes of each category]]}]}.
// Units come with the largest first; what is too much to draw is one entry, "N more".
nlohmann::ordered_json memory_document(const RunData& run);

}  // namespace rondo
