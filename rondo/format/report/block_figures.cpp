#include "rondo/format/report/block_figures.h"

#include <algorithm>
#include <map>

#include "rondo/base/text.h"
#include "rondo/format/compute_timeline.h"

namespace rondo {
namespace {

struct Spans {
  std::vector<TimeSpan> queued;
  std::vector<TimeSpan> link;
};

std::string owner_of(const TraceSpan& event) {
  if (!event.unit.empty()) return event.unit;
  return event.bucket ? str("bucket ", *event.bucket) : event.name;
}

std::int64_t total(const std::vector<TimeSpan>& spans) {
  std::int64_t sum = 0;
  for (const TimeSpan& span : spans) sum += span.length();
  return sum;
}

// Of one rank: of this step and of others, since a block may begin in the step before.
ComputeTimeline computed_by(const Trace& trace, int rank) {
  std::vector<TraceSpan> events;
  for (const Trace::Event& e : trace.events) {
    if (e.rank == rank && e.event.lane == Lane::compute) events.push_back(e.event);
  }
  nest(events);
  return ComputeTimeline(events);
}

}  // namespace

std::vector<UnitBlocks> blocks_by_unit(const Trace& trace, std::int64_t step) {
  std::vector<UnitBlocks> units;
  std::vector<Spans> spans;
  for (const auto& [rank, event] : trace.events) {
    if (event.lane != Lane::communication || event.step != step) continue;
    const std::string owner = owner_of(event);
    const auto found = std::find_if(units.begin(), units.end(), [&, rank = rank](const UnitBlocks& unit) {
      return unit.rank == rank && unit.unit == owner;
    });
    const auto index = static_cast<std::size_t>(found - units.begin());
    if (found == units.end()) {
      units.push_back({.rank = rank, .unit = owner});
      spans.emplace_back();
    }
    UnitBlocks& unit = units[index];
    ++unit.blocks;
    unit.bytes += event.bytes.value_or(0);
    unit.exposed_ns += event.exposed_ns.value_or(0);
    spans[index].link.push_back({event.begin_ns, event.end_ns});
    if (event.queued_ns) spans[index].queued.push_back({*event.queued_ns, event.begin_ns});
  }
  std::map<int, ComputeTimeline> computed;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const int rank = units[i].rank;
    if (!computed.contains(rank)) computed.emplace(rank, computed_by(trace, rank));
    const std::vector<TimeSpan> link = joined(std::move(spans[i].link));
    units[i].queued_ns = total(joined(std::move(spans[i].queued)));
    units[i].link_ns = total(link);
    units[i].overlapped = computed.at(rank).during(link);
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const UnitBlocks& a, const UnitBlocks& b) { return a.rank < b.rank; });
  return units;
}

}  // namespace rondo
