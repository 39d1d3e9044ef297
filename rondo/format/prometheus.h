#pragma once

#include <optional>
#include <span>
#include <string>

#include "rondo/format/metrics.h"

namespace rondo {

// What rows say, in Prometheus' text format (version 0.0.4): a gauge for each figure, its unit in its name,
// "rondo_step_seconds{rank=\"1\"} 0.123". Figures that ranks have each for itself carry the rank. `of_step`:
// rows of all ranks of one step; `validation`: the newest.
std::string prometheus_text(std::span<const MetricsRow> of_step, const std::optional<MetricsRow>& validation);

}  // namespace rondo
