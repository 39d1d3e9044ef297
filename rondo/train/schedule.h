#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// The learning rate of a step as a pure function of the number of optimizer steps done before it: nothing to
// save, and a resumed run needs no replay. An empty function leaves the optimizer's own rate.
using LearningRateSchedule = std::function<double(std::int64_t step)>;

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

// constant: stays. linear, cosine: falls from the end of warm-up to total_steps, as a line or half a cosine
// (Loshchilov and Hutter, "SGDR", 2017, without restarts), and stays at its end from there on. step: drops at
// intervals. Throws UsageError for an unknown kind or values that cannot be.
LearningRateSchedule make_schedule(const ScheduleOptions& options);

// The rate of make_schedule(options) at a position between two steps, from 0 on: for ranks whose steps are
// not those that the schedule counts (SchedulePosition). Throws UsageError for an unknown kind.
double scheduled_rate(const ScheduleOptions& options, double step);

// constant, cosine, linear, step.
std::vector<std::string> schedule_kinds();

}  // namespace rondo
