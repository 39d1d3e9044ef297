#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/train/schedule_options.h"

namespace rondo {

// The learning rate of a step as a pure function of the number of optimizer steps done before it, so nothing
// is saved and a resumed run needs no replay. An empty function keeps the optimizer's own rate.
using LearningRateSchedule = std::function<double(std::int64_t step)>;

// Returns a schedule. constant: no decay. linear, cosine: decays from the end of warm-up to total_steps, as a
// line or half a cosine (Loshchilov and Hutter, "SGDR", 2017, without restarts), and is constant afterwards.
// step: drops at intervals. Throws UsageError for an unknown kind or invalid values.
LearningRateSchedule make_schedule(const ScheduleOptions& options);

// Returns the rate of make_schedule(options) at a fractional step, from 0: for ranks whose steps differ from
// those that the schedule counts (SchedulePosition). Throws UsageError for an unknown kind.
double scheduled_rate(const ScheduleOptions& options, double step);

// Returns constant, cosine, linear, step.
std::vector<std::string> schedule_kinds();

}  // namespace rondo
