#pragma once

#include <map>
#include <string>
#include <vector>

#include "rondo/format/trace.h"

namespace rondo {

// How long units took, step by step, from when they computed (unit_spans.h).
class UnitTimes {
 public:
  // One entry a step, in seconds; backward with the second forward of a checkpointed unit.
  struct Times {
    std::vector<double> forward_s = {};
    std::vector<double> backward_s = {};
  };

  // Takes what UnitSpans::take() gives for one step: an entry of each unit that ran.
  void add_step(const std::vector<TraceSpan>& spans);
  const std::map<std::string, Times>& times() const { return times_; }

 private:
  std::map<std::string, Times> times_;
};

}  // namespace rondo
