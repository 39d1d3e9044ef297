#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rondo/format/trace.h"
#include "rondo/memory/tracker.h"
#include "rondo/nn/unit_state.h"

namespace rondo {

// Records the computation of each unit: events "forward", "backward" and "recompute" (the second forward of a
// checkpointed unit and of units inside it) with the unit's name. If attached after a strategy's observers,
// it excludes the time that these wait. One thread at a time.
class UnitSpans final : public UnitObserver {
 public:
  void pre_forward(UnitState& unit) override { begin(unit, forward_pass()); }
  void post_forward(UnitState& unit) override { end(unit, forward_pass()); }
  void pre_backward(UnitState& unit) override { begin(unit, "backward"); }
  void post_backward(UnitState& unit) override { end(unit, "backward"); }
  void pre_recompute(UnitState& unit) override { begin(unit, "recompute"); }
  void post_recompute(UnitState& unit) override { end(unit, "recompute"); }

  // Returns the spans that ended since the last call.
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

// Durations of units by step, computed from the spans of UnitSpans.
class UnitTimes {
 public:
  // One entry per step, in seconds; backward includes the second forward of a checkpointed unit.
  struct Times {
    std::vector<double> forward_s = {};
    std::vector<double> backward_s = {};
  };

  // Adds the spans of one step, as UnitSpans::take() returns them: one entry for each unit that ran.
  void add_step(const std::vector<TraceSpan>& spans);
  const std::map<std::string, Times>& times() const { return times_; }

 private:
  std::map<std::string, Times> times_;
};

// The largest tracked total during each unit's forward or backward. Attach it after a strategy's observers,
// to units that are not nested. Memory outside units is not attributed. Used by the training thread.
class UnitPeaks final : public UnitObserver {
 public:
  // `tracker` must outlive the object. No other object may take the tracker's largest totals.
  explicit UnitPeaks(MemoryTracker& tracker) : tracker_(tracker) {}

  const std::map<std::string, std::uint64_t>& bytes() const { return bytes_; }

  void pre_forward(UnitState& unit) override { enter(unit); }
  void post_forward(UnitState& unit) override { leave(unit); }
  void pre_backward(UnitState& unit) override { enter(unit); }
  // The end of a unit may be reported late, during another unit.
  void post_backward(UnitState& unit) override { leave(unit); }

 private:
  void enter(const UnitState& unit);
  void leave(const UnitState& unit);

  MemoryTracker& tracker_;
  std::map<std::string, std::uint64_t> bytes_;
  const UnitState* now_ = nullptr;  // in progress
};

// Measurements of one unit in the profiled passes: times in seconds, one per pass, and bytes of the last
// pass.
struct UnitFigures {
  std::vector<double> forward_s = {};
  std::vector<double> backward_s = {};   // without the second forward of a checkpointed unit
  std::vector<double> recompute_s = {};  // time of that second forward; zero if the unit is not checkpointed
  std::uint64_t activation_bytes = 0;    // allocated in the unit's forward and still alive after it
  std::uint64_t forward_workspace_bytes = 0;  // peak of memory that is alive only inside forward
  // Peak of backward above the memory alive at its begin, minus the unit's gradients. Negative if activations
  // are freed before gradients are allocated.
  std::int64_t backward_workspace_bytes = 0;
};

// Measures units over training passes. Attach it to units that are not nested, after a MemoryObserver, whose
// labels it reads. Everything outside units is attributed to the root (kRootUnit), with one exception: memory
// allocated between the forward of the last unit and the first backward pass of a unit (an output layer, the
// loss) counts as that unit's workspace in forward; the root gets only the part that is kept. One thread:
//   profiler.begin_forward(); loss = forward(); profiler.begin_backward(); loss.backward(); profiler.end();
class UnitProfiler final : public UnitObserver {
 public:
  // `gradient_bytes`: gradient bytes of each unit by name, including the root. `tracker` must outlive the
  // object.
  UnitProfiler(MemoryTracker& tracker, std::map<std::string, std::uint64_t> gradient_bytes);

  void begin_forward();
  void begin_backward();
  void end();

  const std::map<std::string, UnitFigures>& figures() const { return figures_; }

  void pre_forward(UnitState& unit) override;
  void post_forward(UnitState& unit) override;
  void pre_backward(UnitState& unit) override;
  void post_backward(UnitState& unit) override;
  void pre_recompute(UnitState& unit) override;
  void post_recompute(UnitState& unit) override;

 private:
  // Times of the current, unfinished pass.
  struct Pass {
    double forward_s = 0;
    double backward_s = 0;
    double recompute_s = 0;
    std::uint64_t activation_bytes = 0;
    std::optional<std::int64_t> backward_workspace_bytes = {};
  };
  // The span between the forward of the last unit and the first backward.
  struct Head {
    bool open = false;
    std::uint64_t before = 0;  // bytes alive at its begin
    std::uint64_t peak = 0;
  };
  // A span of the pass that is attributed to one unit, or to the root.
  struct Span {
    std::string owner;
    std::int64_t begin_ns = 0;
    std::uint64_t total = 0;        // bytes alive at its begin
    std::uint64_t activations = 0;  // likewise
  };
  void begin_span(std::string owner);
  void end_span();
  void close_head();

  MemoryTracker& tracker_;
  std::map<std::string, std::uint64_t> gradient_bytes_;
  std::map<std::string, UnitFigures> figures_;
  std::map<std::string, Pass> pass_;
  Span span_;
  Head head_;
  std::string last_forward_;  // unit whose forward ended last; empty before the first
  bool backward_ = false;
  std::int64_t recompute_begin_ns_ = 0;
};

}  // namespace rondo
