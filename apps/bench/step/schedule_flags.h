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
  enum Field { schedule, segment_bytes, in_flight_bytes, prefetch, gradients_in_flight, fuse_bytes };

  std::string& operator[](Field field) { return texts_[field]; }
  void add_to(CLI::App& app);
  // Returns the options in the strategies' form. Throws UsageError naming the flag of an invalid value.
  OptionValues values() const;
  // Returns the given flags as words of a command line.
  std::vector<std::string> words() const;

 private:
  std::array<std::string, fuse_bytes + 1> texts_ = {};
};

// A step of the ablation: enables one policy in addition to the previous ones.
struct SchedulePolicy {
  std::string name = {};  // "fifo", "+priority", ...
  ScheduleFlags flags = {};
};

// Returns first in, first out without any policy; then priority, partitioning, in_flight_limit, prefetch and
// fusion, each enabled in turn, with the values of `flags` if given.
std::vector<SchedulePolicy> schedule_ablation(ScheduleFlags flags);

// A rondo strategy with its own settings, as text: "zero3 --prefetch 4", "planned --plan p.json".
struct Variant {
  std::string strategy = {};
  ScheduleFlags schedule = {};
  std::string plan = {};     // path of a file
  std::string setting = {};  // its name in results: the text without the strategy; for a plan the file's name
};

// Parses a variant. Throws UsageError that names the wrong part of `text`.
Variant parse_variant(const std::string& text);

}  // namespace rondo::bench
