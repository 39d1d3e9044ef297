#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <string>
#include <vector>

#include "rondo/options/option.h"

namespace rondo::bench {

// The options of a strategy's communication scheduler, as text; empty is the strategy's default.
class ScheduleFlags {
 public:
  enum Field { schedule, block_bytes, in_flight_bytes, prefetch, gradients_in_flight, fuse_bytes };

  std::string& operator[](Field field) { return texts_[field]; }
  void add_to(CLI::App& app);
  // Returns the options as strategies read them. Throws UsageError naming the flag of a value that cannot be
  // read.
  OptionValues values() const;
  // Returns the flags that are given, as words of a command line.
  std::vector<std::string> words() const;

 private:
  std::array<std::string, fuse_bytes + 1> texts_ = {};
};

// A step of the ablation: one policy is switched on, those before it stay on.
struct SchedulePolicy {
  std::string name = {};  // "fifo", "+priority", ...
  ScheduleFlags flags = {};
};

// Returns first in, first out without any policy; then priority, partitioning, in_flight_limit, prefetch and
// fusion, each switched on in turn, with the values of `flags` where they are given.
std::vector<SchedulePolicy> schedule_ablation(ScheduleFlags flags);

// One of rondo's strategies with settings of its own, as text: "zero3 --prefetch 4", "planned --plan p.json".
struct Variant {
  std::string strategy = {};
  ScheduleFlags schedule = {};
  std::string plan = {};     // file
  std::string setting = {};  // its name in results: the text without the strategy, of a plan the file's name
};

// Throws UsageError that names what is wrong in `text`.
Variant parse_variant(const std::string& text);

}  // namespace rondo::bench
