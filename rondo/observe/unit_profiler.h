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

// Records when each unit computes: events "forward", "backward" and "recompute" (the second forward of a
// checkpointed unit and of units inside it) with the unit's name. Attached after a strategy's observers it
// leaves out what those wait for. One thread at a time.
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

// Durations of units by step, made from the spans of UnitSpans.
class UnitTimes {
 public:
  // One entry a step, in seconds; backward with the second forward of a checkpointed unit.
  struct Times {
    std::vector<double> forward_s = {};
    std::vector<double> backward_s = {};
  };

  // Takes what UnitSpans::take() gives for one step: an entry of each unit that ran.
  void add_step(const std::vector<TraceSpan>& spans);
  const std::map<std::string, Times>& times() const { return times_; }

 private:
  std::map<std::string, Times> times_;
};

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
  // A unit may be left late, when another one is in progress.
  void post_backward(UnitState& unit) override { leave(unit); }

 private:
  void enter(const UnitState& unit);
  void leave(const UnitState& unit);

  MemoryTracker& tracker_;
  std::map<std::string, std::uint64_t> bytes_;
  const UnitState* now_ = nullptr;  // in progress
};

// Measurements of one unit in the profiled passes: a time for each pass in seconds, and bytes of the last.
struct UnitFigures {
  std::vector<double> forward_s = {};
  std::vector<double> backward_s = {};        // without the second forward of a checkpointed unit
  std::vector<double> recompute_s = {};       // that second forward; zero where the unit is not checkpointed
  std::uint64_t activation_bytes = 0;         // alive after its forward and not before
  std::uint64_t forward_workspace_bytes = 0;  // alive only inside forward, at its largest
  // The largest moment of backward above what is alive when it begins, less the unit's gradients: below zero
  // where these come while activations go.
  std::int64_t backward_workspace_bytes = 0;
};

// Measures units over training passes: attach it to units that do not lie in each other, after a
// MemoryObserver, whose labels it reads. What no unit does is the root's (kRootUnit), but for the memory of
// what lies between the last unit's forward and the first one's backward (an output layer, the loss): that is
// the last unit's workspace in forward, and of the root's only what stays after it. One thread:
//   profiler.begin_forward(); loss = forward(); profiler.begin_backward(); loss.backward(); profiler.end();
class UnitProfiler final : public UnitObserver {
 public:
  // `gradient_bytes` of each unit, by name, the root's included. `tracker` must outlive the object.
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
  // Times of one pass, not finished yet.
  struct Pass {
    double forward_s = 0;
    double backward_s = 0;
    double recompute_s = 0;
    std::uint64_t activation_bytes = 0;
    std::optional<std::int64_t> backward_workspace_bytes = {};
  };
  // The span between the last unit's forward and the first backward.
  struct Head {
    bool open = false;
    std::uint64_t before = 0;  // alive when it began
    std::uint64_t peak = 0;
  };
  // A span of the pass that one unit, or the root, has to itself.
  struct Span {
    std::string owner;
    std::int64_t begin_ns = 0;
    std::uint64_t total = 0;        // alive when it began
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
  std::string last_forward_;  // the unit that was left last in forward; empty before
  bool backward_ = false;
  std::int64_t recompute_begin_ns_ = 0;
};

}  // namespace rondo
