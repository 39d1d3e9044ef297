#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rondo/train/schedule_state.h"
#include "rondo/train/trainer.h"

namespace rondo {

// What a checkpoint's state.json says of a training besides its optimizers.
struct TrainingValues {
  TrainingPosition position;
  LastFigures last;
  nlohmann::json sampling = nlohmann::json::object();
  std::optional<ScheduleState> schedule = {};  // empty: nothing is known of it
  nlohmann::json precision = nlohmann::json::object();
  nlohmann::json callbacks = nlohmann::json::object();
};

// The values as an object to be saved, without what only readers of files want to know (world size, model).
nlohmann::json to_json(const TrainingValues& values);

// Throws DataError naming `what`, the key and what was expected, for values that cannot be: a step that is no
// whole number from 0 on, a time that is not finite, a world size that is none.
TrainingValues parse_training_values(const nlohmann::json& values, const std::string& what);

}  // namespace rondo
