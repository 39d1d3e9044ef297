#include "rondo/format/report/stragglers.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "rondo/base/arithmetic.h"
#include "rondo/base/text.h"
#include "rondo/format/compute_timeline.h"

namespace rondo {
namespace {

std::string three_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
  return text;
}

// Returns the milliseconds per step that each rank spends in each part, by part.
std::map<std::string, std::map<int, double>> part_times(std::span<const StepTimeline> timelines) {
  std::map<std::string, std::map<int, double>> parts;
  for (const StepTimeline& timeline : timelines) {
    std::map<int, std::vector<TraceSpan>> of_ranks;
    for (const Trace::Event& event : timeline.events)
      if (event.event.lane == Lane::compute) of_ranks[event.rank].push_back(event.event);
    for (auto& [rank, spans] : of_ranks) {
      nest(spans);
      std::vector<TimeSpan> whole;
      for (const TraceSpan& span : spans) whole.push_back({span.begin_ns, span.end_ns});
      for (const auto& [what, ns] : ComputeTimeline(spans).during(joined(std::move(whole))))
        parts[what][rank] += static_cast<double>(ns) / 1e6 / static_cast<double>(timelines.size());
    }
  }
  return parts;
}

}  // namespace

std::vector<RankTimes> rank_times(std::span<const MetricsRow> rows, std::int64_t steps) {
  std::int64_t last = 0;
  for (const MetricsRow& row : rows) last = std::max(last, row.step);
  std::map<int, std::pair<RankTimes, double>> sums;  // by rank, with the number of steps
  for (const MetricsRow& row : rows) {
    if (!row.compute_ms || (steps > 0 && row.step <= last - steps)) continue;
    const auto count = static_cast<double>(row.steps.value_or(1));
    auto& [times, counted] = sums[row.rank];
    const double exposed = row.exposed_comm_ms.value_or(0);
    times.step_ms += count * row.step_ms.value_or(*row.compute_ms + exposed);
    times.compute_ms += count * *row.compute_ms;
    times.comm_ms += count * std::max(row.comm_ms.value_or(0), exposed);
    times.exposed_comm_ms += count * exposed;
    counted += count;
  }
  std::vector<RankTimes> means;
  for (auto& [rank, sum] : sums) {
    auto& [times, counted] = sum;
    times.rank = rank;
    for (const auto field :
         {&RankTimes::step_ms, &RankTimes::compute_ms, &RankTimes::comm_ms, &RankTimes::exposed_comm_ms})
      times.*field /= counted;
    means.push_back(times);
  }
  return means;
}

std::optional<Straggler> find_straggler(std::span<const RankTimes> ranks, double factor) {
  if (ranks.size() < 2) return std::nullopt;
  const auto slowest =
      std::max_element(ranks.begin(), ranks.end(),
                       [](const RankTimes& a, const RankTimes& b) { return a.compute_ms < b.compute_ms; });
  std::vector<double> others;
  for (const RankTimes& times : ranks)
    if (times.rank != slowest->rank) others.push_back(times.compute_ms);
  Straggler straggler{
      .rank = slowest->rank, .compute_ms = slowest->compute_ms, .others_ms = median(std::move(others))};
  if (straggler.others_ms <= 0 || straggler.compute_ms < factor * straggler.others_ms) return std::nullopt;
  return straggler;
}

void find_slow_part(Straggler& straggler, std::span<const StepTimeline> timelines) {
  for (const auto& [part, of_ranks] : part_times(timelines)) {
    const auto own = of_ranks.find(straggler.rank);
    if (own == of_ranks.end() || of_ranks.size() < 2) continue;
    std::vector<double> others;
    for (const auto& [rank, ms] : of_ranks)
      if (rank != straggler.rank) others.push_back(ms);
    const double usual = median(std::move(others));
    if (own->second - usual <= straggler.part_ms - straggler.part_others_ms) continue;
    straggler.part = part;
    straggler.part_ms = own->second;
    straggler.part_others_ms = usual;
  }
}

std::string to_string(const Straggler& straggler) {
  std::string text =
      str("rank ", straggler.rank, " computes ", three_digits(straggler.compute_ms / straggler.others_ms),
          " times as long as the others (", three_digits(straggler.compute_ms), " against ",
          three_digits(straggler.others_ms), " ms a step)");
  if (!straggler.part.empty()) {
    text += str(", most of it in ", straggler.part, " (", three_digits(straggler.part_ms), " against ",
                three_digits(straggler.part_others_ms), " ms)");
  }
  return text;
}

}  // namespace rondo
