#pragma once

#include <vector>

#include "rondo/simulate/step_simulator.h"

namespace rondo::simulate {

// What a step asks of one unit, as training measures it.
struct UnitForecast {
  // Compute stood still for this unit's blocks: before it needed its parameters, for the memory of its
  // gradients, or after the last backward.
  double exposed_s = 0;
  std::uint64_t peak_bytes = 0;  // of everything on the rank, while the unit computes forward or backward
};

// By unit. The units' exposed times add up to the waits of the step: StepResult::exposed_s, less what an
// engine without a thread of its own takes from computing.
std::vector<UnitForecast> forecast_units(const cost::StepModel& model, const Timeline& timeline);

}  // namespace rondo::simulate
