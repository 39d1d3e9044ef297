#pragma once

#include <string>

#include "checks.h"

namespace doctor {

// A table for people, one section after another; what is not ok is followed by what to type. `coloured` for
// terminals.
std::string to_table(const Findings& findings, bool coloured);

// {"rondo_version", "healthy", "findings": [{"section", "name", "state", "detail", "get", "data"}]}.
nlohmann::ordered_json to_json(const Findings& findings);

// Nothing is broken: rondo can train here.
bool healthy(const Findings& findings);

}  // namespace doctor
