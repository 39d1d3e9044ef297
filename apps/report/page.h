#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rondo {

// Returns the page as a self-contained HTML text. `document` is the result of report_document(), {title,
// schedule} with the output of `rondo bench collectives --explain NAME --json -`, or {title, planner} as in
// apps/plan/answer.h; each with made_by, the page's Provenance, if known.
std::string make_page(const nlohmann::ordered_json& document);

}  // namespace rondo
