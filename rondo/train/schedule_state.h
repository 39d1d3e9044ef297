#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "rondo/train/schedule_position.h"

namespace rondo {

// Requested length of a training, and the steps that it takes now.
struct TrainingLength {
  std::optional<std::int64_t> epochs = {};
  std::optional<std::int64_t> steps = {};
  std::int64_t steps_per_epoch = 0;  // of virtual epochs; 0: an epoch is a pass over the data
  std::int64_t steps_per_pass = 1;   // with the present ranks, batch size and accumulation
  std::int64_t last_step = 0;        // optimizer steps done when training ends
};

// State of the schedule in a checkpoint.
struct ScheduleState {
  SchedulePosition position = {};
  // Length as it was requested; `steps_per_pass` is in the unit of SchedulePosition.
  TrainingLength length = {};
};

// Continues `before`, empty for a training that begins, at `step` with the present length. Where only ranks,
// batch size or accumulation have changed, the position goes on from where it was. Another number of epochs
// or steps is followed from the beginning, as if it had been requested then.
ScheduleState continue_schedule(const std::optional<ScheduleState>& before, const TrainingLength& now,
                                std::int64_t step);

// As a checkpoint has it.
nlohmann::json to_json(const ScheduleState& state);
// Throws DataError naming `what` for values that cannot be.
ScheduleState parse_schedule_state(const nlohmann::json& values, const std::string& what);

}  // namespace rondo
