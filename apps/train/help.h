#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/common/help_format.h"
#include "apps/train/flag_set.h"

namespace rondo {

// Help of `rondo train`, generated from the declarations.

// Returns help of the flags that most trainings need, and how to list the others.
HelpPage short_help(const FlagSet& flags);
// Returns help of every flag and option.
HelpPage full_help(const FlagSet& flags);
// Returns the description of one strategy, model, kind of data or engine, with its flags. Throws UsageError
// listing the names if `name` is unknown.
HelpPage help_about(const FlagSet& flags, const std::string& name);
// {"flags": [{name, group, help, type, has_flag, default, for: {flag, values} or null}], "strategies",
// "models", "data_kinds", "engines": [{name, aliases, summary, flags}]}.
nlohmann::ordered_json help_as_json(const FlagSet& flags);

// Returns every option with its value and origin (default, file and line, --set or flag) as a TOML file that
// --config reads.
std::string config_text(const FlagSet& set, const TrainFlags& flags);

}  // namespace rondo
