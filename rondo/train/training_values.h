#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rondo/train/schedule_state.h"
#include "rondo/train/trainer.h"

namespace rondo {

// The values of a checkpoint's state.json about a training, except its optimizers.
struct TrainingValues {
  TrainingPosition position;
  LastFigures last;
  nlohmann::json sampling = nlohmann::json::object();
  std::optional<ScheduleState> schedule = {};  // empty: unknown
  nlohmann::json precision = nlohmann::json::object();
  nlohmann::json callbacks = nlohmann::json::object();
};

// Returns the values as an object to be saved, without those for other programs (world size, model).
nlohmann::json to_json(const TrainingValues& values);

// Throws DataError naming `what`, the key and the expectation for invalid values: a step that is no integer
// from 0, a non-finite time, an invalid world size.
TrainingValues parse_training_values(const nlohmann::json& values, const std::string& what);

}  // namespace rondo
