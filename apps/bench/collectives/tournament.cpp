#include "apps/bench/collectives/tournament.h"

#include <torch/types.h>
#include <algorithm>
#include <cmath>
#include <limits>

#include "rondo/backend/collectives.h"

namespace rondo::bench {
namespace {

// A sample shorter than this would measure the clock.
constexpr double kShortestSampleUs = 5;

// The largest of the ranks' values, element by element.
std::vector<double> largest(const std::vector<double>& mine, const Group& group) {
  at::Tensor values = torch::tensor(mine, at::kDouble);
  all_reduce(values, group, ReduceOp::MAX);
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

Burst plan_burst(const Case& what, double estimate_us, const Effort& effort) {
  Burst burst;
  const double operation_us = std::max(estimate_us, 0.05);
  if (!what.fresh) burst.batch = std::max(1, static_cast<int>(std::ceil(kShortestSampleUs / operation_us)));
  const double sample_us = operation_us * burst.batch;
  burst.samples = std::clamp(static_cast<int>(milliseconds(effort.burst) * 1e3 / sample_us), 3, 1000);
  return burst;
}

}  // namespace

std::vector<Row> run_case(const Case& what, const std::vector<std::unique_ptr<Contender>>& contenders,
                          const Effort& effort, const Group& group) {
  barrier(group);
  const Gaps gaps = watch_for_gaps(effort.gap_watch);
  const std::vector<double> worst_gaps = largest({gaps.longest_us, gaps.lost}, group);

  std::vector<Contender*> playing;
  std::vector<Burst> bursts;
  std::vector<Row> rows;
  for (const auto& contender : contenders) {
    if (!contender->can(what)) continue;
    const bool right = contender->prepare(what);
    const std::vector<double> agreed = largest({right ? 0.0 : 1.0, contender->estimate_us()}, group);
    playing.push_back(contender.get());
    bursts.push_back(plan_burst(what, agreed[1], effort));
    rows.push_back(
        {what, contender->labels(), group.size(), {}, agreed[0] == 0, {worst_gaps[0], worst_gaps[1]}});
  }
  std::vector<double> first_turn(playing.size());  // time of an operation
  double limit = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn < effort.bursts; ++turn) {
    for (std::size_t i = 0; i < playing.size(); ++i) {
      if (turn > 0 && first_turn[i] > limit) continue;
      barrier(group);
      const long long began = monotonic_ns();
      playing[i]->run(bursts[i]);
      const auto operations = static_cast<double>(bursts[i].samples) * bursts[i].batch;
      if (turn == 0) first_turn[i] = static_cast<double>(monotonic_ns() - began) / operations;
    }
    if (turn > 0 || effort.hopeless == 0) continue;
    first_turn = largest(first_turn, group);
    limit = effort.hopeless * *std::min_element(first_turn.begin(), first_turn.end());
  }
  barrier(group);
  for (std::size_t i = 0; i < playing.size(); ++i) {
    const Timing mine = playing[i]->finish();
    const std::vector<double> slowest = largest({mine.p50_us, mine.min_us, double(mine.samples)}, group);
    rows[i].timing = {slowest[0], slowest[1], static_cast<int>(slowest[2])};
  }
  return rows;
}

}  // namespace rondo::bench
