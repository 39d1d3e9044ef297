#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "rondo/collective/request.h"

namespace rondo::collective {

// The shared-memory engine itself, beside the names of algorithms/registry.h.
inline constexpr const char* kEngine = "engine";

// What one algorithm took.
struct AlgorithmTime {
  std::string algorithm;
  double p50_us = 0;
};

// All algorithms measured for one operation on one number of ranks of one host.
struct TuningCell {
  OperationKind operation = OperationKind::all_reduce;
  int ranks = 0;
  std::uint64_t bytes = 0;
  std::vector<AlgorithmTime> times;
};

// What a machine was measured to take.
struct Tuning {
  std::string machine;  // machine_name() of where it was measured
  std::vector<TuningCell> cells;
};

// Where figures are kept: $RONDO_TUNING, else rondo/collectives.json in $XDG_CACHE_HOME or ~/.cache. Empty
// when none of these is set.
std::filesystem::path tuning_path();

// JSON of a table, and back. parse_tuning throws Error that says what is wrong; `origin` is named in it.
std::string format_tuning(const Tuning& tuning);
Tuning parse_tuning(const std::string& text, const std::string& origin);

// Throw Error naming the file. read_tuning returns an empty table when there is no file.
Tuning read_tuning(const std::filesystem::path& path);
// What is kept at tuning_path(), when it was measured on a machine like this one; else an empty table.
Tuning read_tuning_of_this_machine();
void write_tuning(const std::filesystem::path& path, const Tuning& tuning);

struct Choice {
  std::string algorithm;
  std::string reason;  // one line, for people
};

// Algorithms set by hand: of one operation, or with the key "" of all. They win over any measurement.
using HandSet = std::map<std::string, std::string>;

// "ring" for all operations, or "all_reduce=ring,broadcast=engine", names as in algorithms/registry.h. Throws
// UsageError naming what is wrong; `origin` is the flag or variable that it came from.
HandSet parse_hand_set(const std::string& text, const std::string& origin);

// Picks the algorithm of an operation. Functions of its tables alone, so ranks with equal tables choose
// alike. Any thread.
class Chooser {
 public:
  Chooser() = default;
  Chooser(Tuning tuning, HandSet hand_set);

  // By hand, else the fastest by measurement, times between two measured sizes interpolated (geometrically),
  // but the engine where nothing is faster by more than 5 %, and where nothing was measured.
  Choice choose(OperationKind operation, int ranks, std::uint64_t bytes) const;

  // Whether any choice could be other than the engine.
  bool only_engine() const { return only_engine_; }

 private:
  Tuning tuning_;
  HandSet hand_set_;
  bool only_engine_ = true;
};

}  // namespace rondo::collective
