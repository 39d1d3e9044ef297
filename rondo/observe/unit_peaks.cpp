#include "rondo/observe/unit_peaks.h"

#include <algorithm>

namespace rondo {

void UnitPeaks::enter(const UnitState& unit) {
  if (now_ != nullptr) leave(*now_);
  tracker_.take_largest_total();
  now_ = &unit;
}

void UnitPeaks::leave(const UnitState& unit) {
  if (now_ != &unit) return;
  std::uint64_t& most = bytes_[unit.name()];
  most = std::max(most, tracker_.take_largest_total());
  now_ = nullptr;
}

}  // namespace rondo
