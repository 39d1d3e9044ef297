#pragma once

#include <nlohmann/json.hpp>

#include "rondo/format/report/run_data.h"

namespace rondo {

// Returns the figures of a run: run, ranks, steps, epochs, elapsed_s, final_loss, best_validation_loss, rate
// and rate_unit (median over steps), exposed_comm_share, peak_bytes and peak_rss_bytes (of the rank with the
// largest), parameters. Unknown figures are null.
nlohmann::ordered_json summarize(const RunData& run);

// Returns the document of the report page, with downsampled curves: {title, labels: {name, tags, notes},
// summary, verdict: [{text, tone}], config: [[key, value]], changed: [key] or null, data, notes, curves:
// {...}, split: [...], timelines: [...], shown_timeline}. apps/report/page reads it.
nlohmann::ordered_json report_document(const RunData& run);

// Returns the memory part of the document: {categories: [name], step, timelines: [{rank, peak, samples: [[ms,
// bytes of each category]]}], peaks: [{rank, bytes, step, phase, unit, units: [[name, bytes of each
// category]]}]}. Units are sorted by size, largest first; units beyond the limit form one entry "N more".
nlohmann::ordered_json memory_document(const RunData& run);

}  // namespace rondo
