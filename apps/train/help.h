#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/train/flag_set.h"

namespace rondo {

// Help of `rondo train`, made from what is declared.

// The flags that most trainings need, and how to learn of the others.
std::string short_help(const FlagSet& flags);
// Every flag.
std::string full_help(const FlagSet& flags);
// One strategy, model, kind of data or engine, with the flags that it takes. Throws UsageError listing the
// names for one that there is not.
std::string help_about(const FlagSet& flags, const std::string& name);
// {"flags": [{name, group, help, type, has_flag, default, for: {flag, values} or null}], "strategies",
// "models", "data_kinds", "engines": [{name, aliases, summary, flags}]}.
nlohmann::ordered_json help_as_json(const FlagSet& flags);

// Returns every option with its value and origin (default, file and line, --set or flag) as a TOML file that
// --config reads.
std::string config_text(const FlagSet& set, const TrainFlags& flags);

}  // namespace rondo
