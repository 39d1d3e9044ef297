#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "rondo/train/schedule_position.h"

namespace rondo {

// Requested length of a training, and its present number of steps.
struct TrainingLength {
  std::optional<std::int64_t> epochs = {};
  std::optional<std::int64_t> steps = {};
  std::int64_t steps_per_epoch = 0;  // steps of a virtual epoch; 0: an epoch is a pass over the data
  std::int64_t steps_per_pass = 1;   // with the present ranks, batch size and accumulation
  std::int64_t last_step = 0;        // optimizer steps done when training ends
};

// State of the schedule in a checkpoint.
struct ScheduleState {
  SchedulePosition position = {};
  // Length as it was requested; `steps_per_pass` is in the unit of SchedulePosition.
  TrainingLength length = {};
};

// Continues `before`, empty for a new training, at `step` with the present length. If only ranks, batch size
// or accumulation have changed, the position is kept. Another number of epochs or steps applies as if it had
// been requested from the start.
ScheduleState continue_schedule(const std::optional<ScheduleState>& before, const TrainingLength& now,
                                std::int64_t step);

// Converts to the form in a checkpoint.
nlohmann::json to_json(const ScheduleState& state);
// Throws DataError naming `what` for invalid values.
ScheduleState parse_schedule_state(const nlohmann::json& values, const std::string& what);

}  // namespace rondo
