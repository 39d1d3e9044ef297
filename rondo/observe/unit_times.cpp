#include "rondo/observe/unit_times.h"

namespace rondo {

void UnitTimes::add_step(const std::vector<TraceSpan>& spans) {
  struct Sums {
    double forward_s = 0;
    double backward_s = 0;
  };
  std::map<std::string, Sums> step;
  for (const TraceSpan& span : spans) {
    const double seconds = static_cast<double>(span.end_ns - span.begin_ns) * 1e-9;
    // What is computed again is within a backward pass.
    if (span.name == "forward") step[span.unit].forward_s += seconds;
    if (span.name == "backward") step[span.unit].backward_s += seconds;
  }
  for (const auto& [unit, sums] : step) {
    times_[unit].forward_s.push_back(sums.forward_s);
    times_[unit].backward_s.push_back(sums.backward_s);
  }
}

}  // namespace rondo
