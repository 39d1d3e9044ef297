#include "rondo/format/compute_timeline.h"

#include <algorithm>
#include <map>

#include "rondo/base/text.h"

namespace rondo {

std::vector<TimeSpan> joined(std::vector<TimeSpan> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const TimeSpan& a, const TimeSpan& b) { return a.begin_ns < b.begin_ns; });
  std::vector<TimeSpan> result;
  for (const TimeSpan& span : spans) {
    if (result.empty() || span.begin_ns > result.back().end_ns) {
      result.push_back(span);
    } else {
      result.back().end_ns = std::max(result.back().end_ns, span.end_ns);
    }
  }
  return result;
}

Duration time_under_way(std::span<const TraceSpan> spans) {
  std::vector<TimeSpan> times;
  for (const TraceSpan& span : spans) times.push_back({span.begin_ns, span.end_ns});
  std::chrono::nanoseconds busy{0};
  for (const TimeSpan& time : joined(std::move(times))) busy += std::chrono::nanoseconds(time.length());
  return std::chrono::duration_cast<Duration>(busy);
}

void nest(std::vector<TraceSpan>& events) {
  std::stable_sort(events.begin(), events.end(), [](const TraceSpan& a, const TraceSpan& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  std::vector<std::int64_t> ends;  // end times of the enclosing events
  for (TraceSpan& event : events) {
    while (!ends.empty() && ends.back() <= event.begin_ns) ends.pop_back();
    if (!ends.empty()) event.end_ns = std::min(event.end_ns, ends.back());
    ends.push_back(event.end_ns);
  }
}

ComputeTimeline::ComputeTimeline(std::span<const TraceSpan> events) {
  std::vector<const TraceSpan*> around;
  std::int64_t at = 0;
  const auto advance = [&](std::int64_t to) {
    if (!around.empty() && to > at && around.back()->name != kWaitEvent) {
      const TraceSpan& event = *around.back();
      segments_.push_back({{at, to}, event.unit.empty() ? event.name : str(event.name, " of ", event.unit)});
    }
    at = std::max(at, to);
  };
  const auto leave_until = [&](std::int64_t time) {
    while (!around.empty() && around.back()->end_ns <= time) {
      advance(around.back()->end_ns);
      around.pop_back();
    }
  };
  for (const TraceSpan& event : events) {
    leave_until(event.begin_ns);
    advance(event.begin_ns);
    around.push_back(&event);
  }
  leave_until(INT64_MAX);
}

std::vector<std::pair<std::string, std::int64_t>> ComputeTimeline::during(
    std::span<const TimeSpan> spans) const {
  std::map<std::string, std::int64_t> by_name;
  for (const TimeSpan& span : spans) {
    auto segment = std::partition_point(segments_.begin(), segments_.end(),
                                        [&](const Segment& s) { return s.time.end_ns <= span.begin_ns; });
    for (; segment != segments_.end() && segment->time.begin_ns < span.end_ns; ++segment) {
      by_name[segment->what] +=
          std::min(segment->time.end_ns, span.end_ns) - std::max(segment->time.begin_ns, span.begin_ns);
    }
  }
  std::vector<std::pair<std::string, std::int64_t>> result(by_name.begin(), by_name.end());
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

}  // namespace rondo
