#include "apps/bench/step/contest.h"

#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

void append(const nlohmann::json& answer, const char* key, std::vector<double>& values) {
  if (!answer.contains(key)) return;
  for (const nlohmann::json& value : answer.at(key)) values.push_back(value.get<double>());
}

void run_burst(Contestant& contestant, int steps, bool counts, Deadline deadline) {
  for (std::size_t rank = 0; rank < contestant.ranks; ++rank) {
    contestant.fleet->workers[rank]->write_line(str("run ", steps));
  }
  for (std::size_t rank = 0; rank < contestant.ranks; ++rank) {
    const nlohmann::json answer = nlohmann::json::parse(contestant.fleet->workers[rank]->read_line(deadline));
    RankSamples& samples = contestant.samples[rank];
    append(answer, "losses", samples.losses);
    if (!counts) continue;
    append(answer, "step_ms", samples.step_ms);
    append(answer, "comm_ms", samples.comm_ms);
    append(answer, "exposed_comm_ms", samples.exposed_comm_ms);
    samples.matmul = answer.value("matmul", samples.matmul);
    samples.peak_bytes = answer.value("peak_bytes", std::uint64_t{0});
    samples.peak_rss_bytes = answer.value("peak_rss_bytes", std::uint64_t{0});
  }
}

}  // namespace

void run_contest(std::vector<Contestant>& contestants, const ContestOptions& options) {
  for (Contestant& contestant : contestants) contestant.samples.assign(contestant.ranks, {});
  for (int round = -1; round < options.rounds; ++round) {
    for (Contestant& contestant : contestants) {
      const bool counts = round >= 0;
      const int steps = counts ? options.steps : options.warm_up;
      if (steps > 0) run_burst(contestant, steps, counts, Deadline::after(options.patience));
    }
  }
}

}  // namespace rondo::bench
