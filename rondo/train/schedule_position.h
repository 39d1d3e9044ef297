#pragma once

#include <cstdint>

namespace rondo {

// Position of a training along its learning-rate schedule. The unit is an optimizer step with the initial
// ranks, batch size and accumulation; with these the position is the number of optimizer steps done. After a
// change an optimizer step advances the position by more or less. So the schedule continues from its position
// and reaches its end with the last step.
struct SchedulePosition {
  std::int64_t step = 0;    // optimizer steps done
  double done = 0;          // position after them
  double per_step = 1;      // advance for each later step
  std::int64_t length = 0;  // position after the last step of the training

  // Returns the position after `steps_done` optimizer steps.
  double at(std::int64_t steps_done) const {
    return done + per_step * static_cast<double>(steps_done - step);
  }
};

}  // namespace rondo
