#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "rondo/collective/request.h"

namespace rondo::collective {

// Name of the shared-memory engine itself, beside the names of algorithms/registry.h.
inline constexpr const char* kEngine = "engine";

// Measured time of one algorithm.
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

// Measurements of a machine.
struct Tuning {
  std::string machine;  // machine_name() of the measured machine
  std::vector<TuningCell> cells;
};

// Returns the file of the measurements: $RONDO_TUNING, else rondo/collectives.json in $XDG_CACHE_HOME or
// ~/.cache. Empty if none of these is set.
std::filesystem::path tuning_path();

// Convert a table to JSON and back. parse_tuning throws Error with the reason and `origin`.
std::string format_tuning(const Tuning& tuning);
Tuning parse_tuning(const std::string& text, const std::string& origin);

// Reads a table. Returns an empty one if there is no file. Throws Error naming the file.
Tuning read_tuning(const std::filesystem::path& path);
// Reads the table at tuning_path() if it was measured on a machine like this one; else returns an empty
// table.
Tuning read_tuning_of_this_machine();
void write_tuning(const std::filesystem::path& path, const Tuning& tuning);

struct Choice {
  std::string algorithm;
  std::string reason;  // one line for users
};

// Algorithms set by the user: for one operation, or with the key "" for all. These override any measurement.
using AlgorithmOverrides = std::map<std::string, std::string>;

// Parses "ring" for all operations, or "all_reduce=ring,broadcast=engine"; names as in algorithms/registry.h.
// Throws UsageError naming the error; `origin` is the flag or variable of the text.
AlgorithmOverrides parse_hand_set(const std::string& text, const std::string& origin);

// A chooser of the algorithm for an operation. Depends on its tables alone, so ranks with equal tables choose
// alike. Any thread.
class Chooser {
 public:
  Chooser() = default;
  Chooser(Tuning tuning, AlgorithmOverrides hand_set);

  // Returns the user's choice, else the fastest by measurement. Times between two measured sizes are
  // interpolated (geometrically). The engine is chosen if none is faster by more than 5 %, and without
  // measurements.
  Choice choose(OperationKind operation, int ranks, std::uint64_t bytes) const;

  // Returns whether every choice is the engine.
  bool only_engine() const { return only_engine_; }

 private:
  Tuning tuning_;
  AlgorithmOverrides hand_set_;
  bool only_engine_ = true;
};

}  // namespace rondo::collective
