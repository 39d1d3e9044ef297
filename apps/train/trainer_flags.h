#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/options/option_table.h"

namespace rondo {

// What `rondo train` can be told of metrics, epochs and what happens alongside training.
struct TrainerFlags {
  std::int64_t steps_per_epoch = 0;
  std::vector<std::string> metrics;
  std::vector<std::string> class_weights;
  bool restore_best = false;
  std::string best_of;
  std::int64_t reduce_on_plateau = 0;
  bool terminate_on_nan = false;
  std::int64_t gradient_norm_every = 0;
  double average_weights = 0;
  std::string csv_log;
  std::string json_log;
  std::string preemption_file;
  std::string prometheus;
  std::int64_t trace_after = 0;
  std::vector<std::string> log_to = {"tensorboard"};
  std::string mlflow_dir;
  std::int64_t histograms_every = 0;
  std::string peak_flops;
};

// They as flags, in groups of their own.
OptionsOf<TrainerFlags> trainer_flags_table();

}  // namespace rondo
