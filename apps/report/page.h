#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rondo {

// The whole page as one HTML text that loads nothing: `document` is what report_document() returns, or
// {title, plan} with what `rondo bench collectives --explain NAME --json -` prints, or {title, planner} as
// apps/plan/answer.h makes it; each with made_by, the page's Provenance, where it is known.
std::string make_page(const nlohmann::ordered_json& document);

}  // namespace rondo
