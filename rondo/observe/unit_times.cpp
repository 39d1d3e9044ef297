#include "rondo/observe/unit_times.h"

#include "rondo/base/time.h"
#include "rondo/nn/activation_checkpoint.h"

namespace rondo {
namespace {

double seconds_since(std::int64_t begin_ns) { return static_cast<double>(monotonic_ns() - begin_ns) * 1e-9; }

}  // namespace

void UnitTimes::end_step() {
  for (const auto& [name, sums] : step_) {
    times_[name].forward_s.push_back(sums.forward_s);
    times_[name].backward_s.push_back(sums.backward_s);
  }
  step_.clear();
}

// The second forward of a unit inside a checkpointed one is part of that one's backward.
void UnitTimes::pre_forward(UnitState&) {
  if (!recomputing()) forward_begin_ns_ = monotonic_ns();
}

void UnitTimes::post_forward(UnitState& unit) {
  if (!recomputing()) step_[unit.name()].forward_s += seconds_since(forward_begin_ns_);
}

void UnitTimes::pre_backward(UnitState& unit) { backward_begin_ns_[unit.name()] = monotonic_ns(); }

void UnitTimes::post_backward(UnitState& unit) {
  step_[unit.name()].backward_s += seconds_since(backward_begin_ns_[unit.name()]);
}

}  // namespace rondo
