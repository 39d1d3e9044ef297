#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rondo {

// The whole page as one HTML text that loads nothing: `document` is what report_document() returns, or
// {title, plan} with what `rondo bench collectives --explain NAME --json -` prints, or {title, planner} as
// apps/plan/document.h makes it.
std::string make_page(const nlohmann::ordered_json& document);

}  // namespace rondo
