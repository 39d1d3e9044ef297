#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/top/run_view.h"
#include "rondo/base/terminal.h"

namespace rondo {

// The lines of the screen, none wider or more than the terminal holds. Of more ranks than there are lines the
// slowest are shown, and how many are not.
std::vector<std::string> screen_lines(const RunView& run, TerminalSize size);

// The same as a JSON object: {run, running, step, total_steps, loss, validation, rate, rate_unit, ranks:
// [{rank, step_ms, compute_ms, exposed_comm_ms, comm_ms, peak_bytes}], straggler}.
nlohmann::ordered_json view_json(const RunView& run);

}  // namespace rondo
