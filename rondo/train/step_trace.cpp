#include "rondo/train/step_trace.h"

#include <utility>

#include "rondo/base/time.h"
#include "rondo/format/compute_timeline.h"
#include "rondo/nn/partition.h"

namespace rondo {
namespace {

// A wait that ended at once is no event.
constexpr std::int64_t kShortestWaitNs = 20'000;

TraceEvent wait_event(const CommunicationSpan& span) {
  TraceEvent event;
  event.name = kWaitEvent;
  event.unit = span.unit;
  event.begin_ns = span.waited_ns;
  event.end_ns = span.waited_ns + span.exposed_ns;
  return event;
}

TraceEvent block_event(const CommunicationSpan& span) {
  TraceEvent event;
  event.name = span.operation;
  event.lane = Lane::communication;
  event.begin_ns = span.begin_ns;
  event.end_ns = span.end_ns;
  if (span.bucket >= 0) event.bucket = span.bucket;
  event.bytes = span.bytes.count;
  event.unit = span.unit;
  event.queued_ns = span.queued_ns;
  event.exposed_ns = span.exposed_ns;
  return event;
}

}  // namespace

StepTrace::StepTrace(const torch::nn::Module& model, std::function<void(TraceEvent)> sink)
    : sink_(std::move(sink)), units_(units_of(model)), unit_spans_(std::make_shared<UnitSpans>()) {
  for (UnitState* unit : units_) unit->attach(unit_spans_);
}

StepTrace::~StepTrace() {
  for (UnitState* unit : units_) unit->detach(unit_spans_);
}

void StepTrace::begin_step() {
  unit_spans_->take();
  now_.clear();
  begin_ns_ = monotonic_ns();
}

void StepTrace::add_phase(const char* name, std::int64_t begin_ns, std::int64_t end_ns) {
  TraceEvent event;
  event.name = name;
  event.begin_ns = begin_ns;
  event.end_ns = end_ns;
  now_.push_back(std::move(event));
}

void StepTrace::finish_step(std::int64_t step, const std::vector<CommunicationSpan>& spans) {
  for (TraceEvent& event : unit_spans_->take()) now_.push_back(std::move(event));
  for (const CommunicationSpan& span : spans) {
    if (span.exposed_ns >= kShortestWaitNs && span.waited_ns >= begin_ns_) now_.push_back(wait_event(span));
  }
  nest(now_);
  for (TraceEvent& event : now_) event.step = step;

  std::vector<TraceEvent> computed = std::move(before_);
  computed.insert(computed.end(), now_.begin(), now_.end());
  const ComputeTimeline timeline(computed);
  for (const TraceEvent& event : now_) sink_(event);
  for (const CommunicationSpan& span : spans) {
    TraceEvent event = block_event(span);
    event.step = step;
    const TimeSpan under_way{event.begin_ns, event.end_ns};
    event.overlapped = timeline.during({&under_way, 1});
    sink_(std::move(event));
  }
  before_ = std::exchange(now_, {});
}

}  // namespace rondo
