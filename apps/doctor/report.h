#pragma once

#include <string>

#include "checks.h"

namespace doctor {

// Returns a table for terminals, one section after another; a finding that is not ok has its remedy below.
// `coloured` adds escape sequences.
std::string to_table(const Findings& findings, bool coloured);

// Returns {"rondo_version", "healthy", "findings": [{"section", "name", "state", "detail", "get", "data"}]}.
nlohmann::ordered_json to_json(const Findings& findings);

// Returns true if no finding is broken: rondo can train here.
bool healthy(const Findings& findings);

}  // namespace doctor
