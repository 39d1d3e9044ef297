#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/train/schedule_options.h"

namespace rondo {

// The learning rate of a step as a pure function of the number of optimizer steps done before it: nothing to
// save, and a resumed run needs no replay. An empty function leaves the optimizer's own rate.
using LearningRateSchedule = std::function<double(std::int64_t step)>;

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
