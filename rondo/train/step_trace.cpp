#include "rondo/train/step_trace.h"

#include <utility>

#include "rondo/base/time.h"
#include "rondo/format/compute_timeline.h"
#include "rondo/nn/unit_state.h"

namespace rondo {
namespace {

// Shorter waits are no events.
constexpr std::int64_t kShortestWaitNs = 20'000;

TraceSpan wait_event(const TraceSpan& span) {
  TraceSpan event;
  event.name = kWaitEvent;
  event.unit = span.unit;
  event.begin_ns = span.waited_ns;
  event.end_ns = span.waited_ns + span.exposed_ns.value_or(0);
  return event;
}

}  // namespace

StepTrace::StepTrace(const torch::nn::Module& model, std::function<void(TraceSpan)> sink)
    : sink_(std::move(sink)), units_(units_of(model)), unit_spans_(std::make_shared<UnitSpans>()) {}

StepTrace::~StepTrace() { detach(); }

void StepTrace::detach() {
  for (UnitState* unit : units_) unit->detach(unit_spans_);
}

void StepTrace::begin_step() {
  for (UnitState* unit : units_) unit->attach(unit_spans_);
  now_.clear();
  begin_ns_ = monotonic_ns();
}

void StepTrace::add_phase(const char* name, std::int64_t begin_ns, std::int64_t end_ns) {
  TraceSpan event;
  event.name = name;
  event.begin_ns = begin_ns;
  event.end_ns = end_ns;
  now_.push_back(std::move(event));
}

void StepTrace::finish_step(std::int64_t step, const std::vector<TraceSpan>& spans) {
  detach();
  for (TraceSpan& event : unit_spans_->take()) now_.push_back(std::move(event));
  for (const TraceSpan& span : spans) {
    if (span.exposed_ns.value_or(0) >= kShortestWaitNs && span.waited_ns >= begin_ns_)
      now_.push_back(wait_event(span));
  }
  nest(now_);
  for (TraceSpan& event : now_) event.step = step;

  std::vector<TraceSpan> computed = std::move(before_);
  computed.insert(computed.end(), now_.begin(), now_.end());
  const ComputeTimeline timeline(computed);
  for (const TraceSpan& event : now_) sink_(event);
  for (TraceSpan span : spans) {
    span.step = step;
    const TimeSpan under_way{span.begin_ns, span.end_ns};
    span.overlapped = timeline.during({&under_way, 1});
    sink_(std::move(span));
  }
  before_ = std::exchange(now_, {});
}

}  // namespace rondo
