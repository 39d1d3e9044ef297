#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "rondo/memory/tracker.h"
#include "rondo/nn/unit_state.h"

namespace rondo {

// The largest tracked total while each unit computed, forward or backward: attach it after a strategy's
// observers to units that do not lie in each other. What is outside units belongs to none. The thread that
// trains uses it.
class UnitPeaks final : public UnitObserver {
 public:
  // `tracker` must outlive the object; nobody else takes its largest totals.
  explicit UnitPeaks(MemoryTracker& tracker) : tracker_(tracker) {}

  const std::map<std::string, std::uint64_t>& bytes() const { return bytes_; }

  void pre_forward(UnitState& unit) override { enter(unit); }
  void post_forward(UnitState& unit) override { leave(unit); }
  void pre_backward(UnitState& unit) override { enter(unit); }
  // A unit may be left late, when another one is under way.
  void post_backward(UnitState& unit) override { leave(unit); }

 private:
  void enter(const UnitState& unit);
  void leave(const UnitState& unit);

  MemoryTracker& tracker_;
  std::map<std::string, std::uint64_t> bytes_;
  const UnitState* now_ = nullptr;  // under way
};

}  // namespace rondo
