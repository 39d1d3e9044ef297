#include "apps/bench/step/contest.h"

#include <algorithm>

#include "apps/bench/emulated_hosts.h"
#include "apps/bench/step/process_figures.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

constexpr int kMemorySteps = 2;

void append(const nlohmann::json& answer, const char* key, bool without_first, std::vector<double>& values) {
  if (!answer.contains(key)) return;
  const auto all = answer.at(key).get<std::vector<double>>();
  values.insert(values.end(), all.begin() + (without_first && all.size() > 1 ? 1 : 0), all.end());
}

void command(Contestant& contestant, const char* verb, int steps) {
  for (std::size_t rank = 0; rank < contestant.ranks; ++rank)
    contestant.fleet->workers[rank]->write_line(str(verb, " ", steps));
}

nlohmann::json answer_of(Contestant& contestant, std::size_t rank, Deadline deadline) {
  return parse_json_strict(contestant.fleet->workers[rank]->read_line(deadline), "the answer of a worker");
}

// Bytes that each host has sent so far; empty where ranks are not on emulated hosts.
std::vector<std::uint64_t> sent_by_host(const Contestant& contestant) {
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(contestant.fleet->hosts));
  if (sent.size() < 2) return {};
  for (std::size_t rank = 0; rank < contestant.ranks; ++rank) {
    const int host = contestant.fleet->host_of(static_cast<int>(rank));
    sent[static_cast<std::size_t>(host)] =
        bytes_sent(contestant.fleet->workers[rank]->pid(), EmulatedHosts::interface(host));
  }
  return sent;
}

void run_burst(Contestant& contestant, int steps, bool counts, Deadline deadline) {
  const std::vector<std::uint64_t> before = sent_by_host(contestant);
  command(contestant, "run", steps);
  for (std::size_t rank = 0; rank < contestant.ranks; ++rank) {
    const nlohmann::json answer = answer_of(contestant, rank, deadline);
    RankSamples& samples = contestant.samples[rank];
    append(answer, "losses", false, samples.losses);
    if (!counts) continue;
    append(answer, "step_ms", true, samples.step_ms);
    append(answer, "comm_ms", true, samples.comm_ms);
    append(answer, "exposed_comm_ms", true, samples.exposed_comm_ms);
    samples.matmul = answer.value("matmul", samples.matmul);
  }
  const std::vector<std::uint64_t> after = sent_by_host(contestant);
  std::uint64_t most = 0;
  for (std::size_t host = 0; host < after.size(); ++host) most = std::max(most, after[host] - before[host]);
  if (!counts || after.empty()) return;
  contestant.link_bytes += most;
  contestant.link_steps += steps;
}

// Looks at the processes again and again while they train: from outside, so in the same way for all systems.
void watch_memory(Contestant& contestant, Deadline deadline) {
  command(contestant, "memory", kMemorySteps);
  std::vector<bool> done(contestant.ranks, false);
  while (std::find(done.begin(), done.end(), false) != done.end()) {
    for (std::size_t rank = 0; rank < contestant.ranks; ++rank) {
      const ChildProcess& worker = *contestant.fleet->workers[rank];
      RankSamples& samples = contestant.samples[rank];
      const ResidentMemory now = resident_memory(worker.pid());
      samples.peak_pss_bytes = std::max(samples.peak_pss_bytes, now.pss);
      samples.peak_resident_bytes = std::max(samples.peak_resident_bytes, now.resident);
      done[rank] = done[rank] || worker.answers_within(std::chrono::milliseconds(1)) || deadline.passed();
    }
  }
  for (std::size_t rank = 0; rank < contestant.ranks; ++rank) {
    const nlohmann::json answer = answer_of(contestant, rank, deadline);
    RankSamples& samples = contestant.samples[rank];
    samples.peak_bytes = answer.value("peak_bytes", std::uint64_t{0});
    samples.peak_tensor_bytes = answer.value("peak_tensor_bytes", std::uint64_t{0});
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
  for (Contestant& contestant : contestants) watch_memory(contestant, Deadline::after(options.patience));
}

}  // namespace rondo::bench
