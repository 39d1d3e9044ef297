#pragma once

#include <string>

#include "apps/bench/step/schedule_flags.h"

namespace rondo::bench {

// One of rondo's strategies with settings of its own, as text: "zero3 --prefetch 4", "planned --plan p.json".
struct Variant {
  std::string strategy = {};
  ScheduleFlags schedule = {};
  std::string plan = {};     // file
  std::string setting = {};  // what results call it: the text without the strategy, of a plan its file's name
};

// Throws UsageError that names what is wrong in `text`.
Variant parse_variant(const std::string& text);

}  // namespace rondo::bench
