#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace doctor {

enum class State { ok, missing, warning, broken };

// One line of the report.
struct Finding {
  std::string section;  // "libtorch", "backends", ...
  std::string name;     // "gloo"
  State state = State::ok;
  std::string detail;   // what was found
  std::string get;      // what to do or type when it is not ok
  nlohmann::json data;  // the same for programs; an object or null
};

using Findings = std::vector<Finding>;

// "ok", "missing", "warning" or "broken". Only "broken" makes the doctor exit with 1: rondo cannot train so.
const char* to_string(State state);

}  // namespace doctor
