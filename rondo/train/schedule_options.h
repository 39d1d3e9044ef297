#pragma once

#include <cstdint>
#include <string>

#include "rondo/options/option_table.h"

// Options of learning rates and their declarations for command lines, without libtorch.
namespace rondo {

// A schedule's name and options; each kind reads its own.
struct ScheduleOptions {
  std::string kind = "constant";  // one of schedule_kinds()
  double learning_rate = 1e-3;    // highest rate, reached at the end of warm-up
  std::int64_t warmup_steps = 0;  // linear warm-up: step s has (s + 1) / warmup_steps of the rate
  // linear, cosine: the step at which decay ends. 0 means the length of the training in
  // FitOptions::named_schedule and LearningRateScheduler.
  std::int64_t total_steps = 0;
  double end_fraction = 0.0;        // linear, cosine: final rate as a fraction of learning_rate
  std::int64_t decay_every = 1000;  // step: steps between drops, counted after warm-up
  double decay_factor = 0.1;        // step: multiplier of the rate at each drop
};

OptionsOf<ScheduleOptions> schedule_table();  // lr-schedule, warmup-steps, ...; the optimizer has the rate

}  // namespace rondo
