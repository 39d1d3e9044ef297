#include "rondo/observe/unit_profiler.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rondo/base/time.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/unit_state.h"

namespace rondo {

const char* UnitSpans::forward_pass() { return recomputing() ? "recompute" : "forward"; }

void UnitSpans::begin(UnitState& unit, const char* pass) { open_.push_back({&unit, pass, monotonic_ns()}); }

void UnitSpans::end(UnitState& unit, const char* pass) {
  const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& open) {
    return open.unit == &unit && std::strcmp(open.pass, pass) == 0;
  });
  if (found == open_.rend()) return;
  TraceSpan event;
  event.name = pass;
  event.unit = unit.name();
  event.begin_ns = found->begin_ns;
  event.end_ns = monotonic_ns();
  ended_.push_back(std::move(event));
  open_.erase(std::next(found).base());
}

std::vector<TraceSpan> UnitSpans::take() {
  open_.clear();  // entries that remain after an exception
  return std::exchange(ended_, {});
}

void UnitTimes::add_step(const std::vector<TraceSpan>& spans) {
  struct Sums {
    double forward_s = 0;
    double backward_s = 0;
  };
  std::map<std::string, Sums> step;
  for (const TraceSpan& span : spans) {
    const double seconds = static_cast<double>(span.end_ns - span.begin_ns) * 1e-9;
    // Recomputation runs within a backward pass.
    if (span.name == "forward") step[span.unit].forward_s += seconds;
    if (span.name == "backward") step[span.unit].backward_s += seconds;
  }
  for (const auto& [unit, sums] : step) {
    times_[unit].forward_s.push_back(sums.forward_s);
    times_[unit].backward_s.push_back(sums.backward_s);
  }
}

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

namespace {

double seconds_since(std::int64_t begin_ns) { return static_cast<double>(monotonic_ns() - begin_ns) * 1e-9; }

std::uint64_t above(std::uint64_t value, std::uint64_t floor) { return value > floor ? value - floor : 0; }

}  // namespace

UnitProfiler::UnitProfiler(MemoryTracker& tracker, std::map<std::string, std::uint64_t> gradient_bytes)
    : tracker_(tracker), gradient_bytes_(std::move(gradient_bytes)) {}

void UnitProfiler::begin_forward() {
  pass_.clear();
  for (auto& [name, figures] : figures_) figures.forward_workspace_bytes = 0;
  backward_ = false;
  head_ = {};
  last_forward_.clear();
  begin_span(kRootUnit);
}

void UnitProfiler::begin_backward() {
  const std::uint64_t before = span_.total;
  if (!last_forward_.empty()) head_ = {.open = true, .before = before, .peak = before};
  end_span();
  backward_ = true;
  begin_span(kRootUnit);
}

void UnitProfiler::end() {
  end_span();
  for (const auto& [name, pass] : pass_) {
    UnitFigures& figures = figures_[name];
    figures.forward_s.push_back(pass.forward_s);
    figures.backward_s.push_back(pass.backward_s - pass.recompute_s);
    figures.recompute_s.push_back(pass.recompute_s);
    figures.activation_bytes = pass.activation_bytes;
    figures.backward_workspace_bytes = pass.backward_workspace_bytes.value_or(0);
  }
}

void UnitProfiler::pre_forward(UnitState& unit) {
  end_span();
  begin_span(unit.name());
}

void UnitProfiler::post_forward(UnitState& unit) {
  end_span();
  last_forward_ = unit.name();
  begin_span(kRootUnit);
}

void UnitProfiler::pre_backward(UnitState& unit) {
  end_span();
  close_head();
  begin_span(unit.name());
}

// The end of a unit may be reported late, at the end of the whole pass, during another span.
void UnitProfiler::post_backward(UnitState& unit) {
  if (span_.owner != unit.name()) return;
  end_span();
  begin_span(kRootUnit);
}

void UnitProfiler::pre_recompute(UnitState&) { recompute_begin_ns_ = monotonic_ns(); }

void UnitProfiler::post_recompute(UnitState& unit) {
  pass_[unit.name()].recompute_s += seconds_since(recompute_begin_ns_);
}

void UnitProfiler::begin_span(std::string owner) {
  const MemoryInterval interval = tracker_.take_interval();
  span_ = {.owner = std::move(owner),
           .begin_ns = monotonic_ns(),
           .total = total_of(interval.now),
           .activations = bytes_of(interval.now, MemoryCategory::activations)};
}

void UnitProfiler::end_span() {
  const double seconds = seconds_since(span_.begin_ns);
  const MemoryInterval interval = tracker_.take_interval();
  Pass& pass = pass_[span_.owner];
  (backward_ ? pass.backward_s : pass.forward_s) += seconds;
  const std::uint64_t peak = total_of(interval.peak);
  if (head_.open) {
    head_.peak = std::max(head_.peak, peak);
    return;
  }
  if (backward_) {
    const std::int64_t workspace = static_cast<std::int64_t>(above(peak, span_.total)) -
                                   static_cast<std::int64_t>(gradient_bytes_[span_.owner]);
    pass.backward_workspace_bytes = std::max(pass.backward_workspace_bytes.value_or(INT64_MIN), workspace);
    return;
  }
  UnitFigures& figures = figures_[span_.owner];
  pass.activation_bytes += above(bytes_of(interval.now, MemoryCategory::activations), span_.activations);
  figures.forward_workspace_bytes =
      std::max(figures.forward_workspace_bytes, above(peak, std::max(span_.total, total_of(interval.now))));
}

// The remaining memory, gradients of an output layer, is kept until the root's own backward.
void UnitProfiler::close_head() {
  if (!std::exchange(head_.open, false)) return;
  std::uint64_t& workspace = figures_[last_forward_].forward_workspace_bytes;
  workspace = std::max(workspace, above(head_.peak, head_.before));
  pass_[kRootUnit].activation_bytes += above(tracker_.total(), head_.before);
}

}  // namespace rondo
