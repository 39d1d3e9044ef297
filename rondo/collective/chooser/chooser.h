#pragma once

#include <map>
#include <string>

#include "rondo/collective/chooser/tuning.h"

namespace rondo::collective {

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
