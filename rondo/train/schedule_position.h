#pragma once

#include <cstdint>

namespace rondo {

// Position of a training along its learning-rate schedule. The unit is an optimizer step of the ranks, batch
// size and accumulation that the training began with: there the position is the number of optimizer steps
// done. After a change of these an optimizer step advances it by more or less, so that the schedule goes on
// from where it was and reaches its end with the last step.
struct SchedulePosition {
  std::int64_t step = 0;    // optimizer steps done
  double done = 0;          // position after them
  double per_step = 1;      // advance with each step from there on
  std::int64_t length = 0;  // position after the last step of the training

  // The position after `steps_done` optimizer steps.
  double at(std::int64_t steps_done) const {
    return done + per_step * static_cast<double>(steps_done - step);
  }
};

}  // namespace rondo
