#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rondo/format/metrics_row.h"

namespace rondo {

class Callback;

// A run whose metrics go to log targets.
struct LoggedRun {
  std::filesystem::path directory = {};                // directory of the run's files
  std::string name = {};                               // name of the run for users
  std::map<std::string, std::string> parameters = {};  // options of the run, by name
  std::int64_t every_steps = 10;                       // steps between entries
  bool writes = true;                                  // whether this process writes for the run (rank 0)
};

// The functions of a log target that a training calls. Both may be empty.
struct LogTarget {
  std::shared_ptr<Callback> callback = {};  // callback for FitOptions, on all ranks
  // Receives the rows of all ranks of a step, or the row of a validation; for MetricsLog::Options::observers.
  std::function<void(std::span<const MetricsRow>)> observer = {};
};

}  // namespace rondo
