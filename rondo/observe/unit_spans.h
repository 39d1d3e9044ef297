#pragma once

#include <cstdint>
#include <vector>

#include "rondo/format/trace.h"
#include "rondo/nn/unit_state.h"

namespace rondo {

// When each unit computed: events "forward", "backward" and "recompute" (the second forward of a checkpointed
// unit and of units inside it) with the unit's name. Attached after a strategy's observers it leaves out what
// those wait for. One thread at a time.
class UnitSpans final : public UnitObserver {
 public:
  void pre_forward(UnitState& unit) override { begin(unit, forward_pass()); }
  void post_forward(UnitState& unit) override { end(unit, forward_pass()); }
  void pre_backward(UnitState& unit) override { begin(unit, "backward"); }
  void post_backward(UnitState& unit) override { end(unit, "backward"); }
  void pre_recompute(UnitState& unit) override { begin(unit, "recompute"); }
  void post_recompute(UnitState& unit) override { end(unit, "recompute"); }

  // What ended since the last call.
  std::vector<TraceSpan> take();

 private:
  struct Open {
    const UnitState* unit;
    const char* pass;
    std::int64_t begin_ns;
  };
  static const char* forward_pass();
  void begin(UnitState& unit, const char* pass);
  void end(UnitState& unit, const char* pass);

  std::vector<Open> open_;
  std::vector<TraceSpan> ended_;
};

}  // namespace rondo
