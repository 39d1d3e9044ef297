#include "apps/bench/pipeline/contestant.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

std::vector<pipeline::Slot> slots_of(const nlohmann::json& told) {
  std::vector<pipeline::Slot> slots;
  for (const nlohmann::json& slot : told) {
    slots.push_back({{static_cast<pipeline::ActionKind>(slot.at(0).get<int>()), slot.at(1), slot.at(2)},
                     slot.at(3),
                     slot.at(4)});
  }
  return slots;
}

}  // namespace

void take_turn(PipelineContestant& contestant, int micro_batches, int steps, bool counts, Deadline deadline) {
  const auto& workers = contestant.fleet->workers;
  for (const auto& worker : workers) worker->write_line(str("run ", steps));
  std::vector<nlohmann::json> answers;
  for (const auto& worker : workers)
    answers.emplace_back(parse_json_strict(worker->read_line(deadline), "the answer of a worker"));
  for (const nlohmann::json& answer : answers) {
    contestant.peak_rss_bytes =
        std::max(contestant.peak_rss_bytes, answer.at("peak_rss_bytes").get<std::uint64_t>());
    contestant.matmul = answer.value("matmul", contestant.matmul);
    // Of PyTorch's ranks only that of the last stage knows it.
    const double loss = answer.at("losses").back();
    if (loss != 0) contestant.last_loss = loss;
  }
  if (!counts) return;
  const bool is_pipeline = contestant.system == "rondo" && !contestant.schedule.empty();
  for (int step = steps > 1 ? 1 : 0; step < steps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    double slowest = 0;
    std::vector<std::vector<pipeline::Slot>> slots;
    for (const nlohmann::json& answer : answers) {
      slowest = std::max(slowest, answer.at("step_ms").at(at).get<double>());
      if (is_pipeline) slots.push_back(slots_of(answer.at("slots").at(at)));
    }
    contestant.step_ms.push_back(slowest);
    if (!is_pipeline) continue;
    const int ranks = static_cast<int>(workers.size());
    contestant.bubbles.push_back(
        bubble_of(pipeline::make_schedule(contestant.schedule, ranks, micro_batches), slots));
  }
}

}  // namespace rondo::bench
