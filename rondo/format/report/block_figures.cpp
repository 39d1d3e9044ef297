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

// By rank: of this step and of others, since a block may begin in the step before.
std::map<int, ComputeTimeline> computed_by_rank(const Trace& trace) {
  std::map<int, std::vector<TraceSpan>> events;
  for (const Trace::Event& e : trace.events) {
    if (e.event.lane == Lane::compute) events[e.rank].push_back(e.event);
  }
  std::map<int, ComputeTimeline> computed;
  for (auto& [rank, own] : events) {
    nest(own);
    computed.emplace(rank, ComputeTimeline(own));
  }
  return computed;
}

}  // namespace

std::vector<UnitBlocks> blocks_by_unit(const Trace& trace, std::int64_t step) {
  std::vector<UnitBlocks> units;
  std::vector<Spans> spans;
  std::map<std::pair<int, std::string>, std::size_t> places;  // by rank and unit
  for (const auto& [rank, event] : trace.events) {
    if (event.lane != Lane::communication || event.step != step) continue;
    const std::string owner = owner_of(event);
    const auto [place, is_new] = places.emplace(std::pair{rank, owner}, units.size());
    const std::size_t index = place->second;
    if (is_new) {
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
  const std::map<int, ComputeTimeline> computed = computed_by_rank(trace);
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::vector<TimeSpan> link = joined(std::move(spans[i].link));
    units[i].queued_ns = total(joined(std::move(spans[i].queued)));
    units[i].link_ns = total(link);
    const auto own = computed.find(units[i].rank);
    if (own != computed.end()) units[i].overlapped = own->second.during(link);
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const UnitBlocks& a, const UnitBlocks& b) { return a.rank < b.rank; });
  return units;
}

}  // namespace rondo
