#pragma once

#include <string>
#include <vector>

#include "rondo/options/option.h"

namespace CLI {
class App;
}

namespace rondo::bench {

// What a strategy is told about its communication scheduler, as text; empty is the strategy's default.
struct ScheduleFlags {
  std::string schedule = {};
  std::string block_bytes = {};
  std::string in_flight_bytes = {};
  std::string prefetch = {};
  std::string gradients_in_flight = {};
  std::string fuse_bytes = {};

  void add_to(CLI::App& app);
  // As strategies read them. Throws UsageError naming the flag of a value that cannot be read.
  OptionValues values() const;
  std::vector<std::string> words() const;
};

// One step of the ablation: a policy is switched on, those before it stay on.
struct SchedulePolicy {
  std::string name = {};  // "fifo", "+priority", ...
  ScheduleFlags flags = {};
};

// First in, first out without any policy; then priority, partitioning, in_flight_limit, prefetch and fusion,
// each switched on in turn, with the values of `flags` where they are given.
std::vector<SchedulePolicy> schedule_ablation(const ScheduleFlags& flags);

}  // namespace rondo::bench
