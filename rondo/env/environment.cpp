#include "rondo/env/environment.h"

#include <unistd.h>

namespace rondo::env {

EnvironmentMap process_environment() {
  EnvironmentMap map;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) {
      map.emplace(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
    }
  }
  return map;
}

std::optional<std::string> lookup(const EnvironmentMap& environment, std::string_view variable) {
  const auto found = environment.find(variable);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

bool started_by_launcher(const EnvironmentMap& environment) {
  const bool is_marked = lookup(environment, "RONDO_LAUNCHER").has_value() ||
                         lookup(environment, "TORCHELASTIC_RUN_ID").has_value();
  return is_marked && lookup(environment, "RANK").has_value() &&
         lookup(environment, "WORLD_SIZE").has_value();
}

}  // namespace rondo::env
