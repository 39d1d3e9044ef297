#pragma once

#include <cstdint>
#include <string>

#include "rondo/options/option_table.h"

// Options of learning rates with their declarations for command lines, without libtorch.
namespace rondo {

// A schedule by name and its figures; each kind takes what concerns it.
struct ScheduleOptions {
  std::string kind = "constant";  // one of schedule_kinds()
  double learning_rate = 1e-3;    // the highest, reached at the end of warm-up
  std::int64_t warmup_steps = 0;  // rises linearly: step s has (s + 1) / warmup_steps of the rate
  // linear, cosine: the step at which the rate reaches its end. In FitOptions::named_schedule and of
  // LearningRateScheduler 0 stands for the length of the training.
  std::int64_t total_steps = 0;
  double end_fraction = 0.0;        // linear, cosine: the rate at the end as a fraction of learning_rate
  std::int64_t decay_every = 1000;  // step: steps between drops, counted after warm-up
  double decay_factor = 0.1;        // step: what each drop multiplies the rate with
};

OptionsOf<ScheduleOptions> schedule_table();    // lr-schedule, warmup-steps, ...; the rate is the optimizer's

}  // namespace rondo
