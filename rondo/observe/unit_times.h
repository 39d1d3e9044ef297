#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rondo/nn/unit_state.h"

namespace rondo {

// How long units take, step by step: attach it after a strategy's observers, and what these wait for does not
// count. Costs a look at the clock. The thread that trains uses it.
class UnitTimes final : public UnitObserver {
 public:
  // One entry a step, in seconds; backward with the second forward of a checkpointed unit.
  struct Times {
    std::vector<double> forward_s = {};
    std::vector<double> backward_s = {};
  };

  // Ends a step: what was seen since the last call is one entry of each unit that ran.
  void end_step();
  const std::map<std::string, Times>& times() const { return times_; }

  void pre_forward(UnitState& unit) override;
  void post_forward(UnitState& unit) override;
  void pre_backward(UnitState& unit) override;
  void post_backward(UnitState& unit) override;

 private:
  struct Sums {
    double forward_s = 0;
    double backward_s = 0;
  };

  std::map<std::string, Times> times_;
  std::map<std::string, Sums> step_;
  std::int64_t forward_begin_ns_ = 0;
  std::map<std::string, std::int64_t> backward_begin_ns_;
};

}  // namespace rondo
