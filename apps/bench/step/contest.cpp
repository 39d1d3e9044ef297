#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "apps/bench/step/step.h"
#include "rondo/base/bytes.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

constexpr int kMemorySteps = 2;

// Reads lines such as "RssAnon:    1234 kB" from a file below /proc/PROCESS.
std::map<std::string, std::uint64_t> sizes_in(pid_t process, const char* name) {
  std::ifstream file(str("/proc/", process, "/", name));
  std::map<std::string, std::uint64_t> sizes;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.ends_with(" kB")) continue;
    sizes[line.substr(0, colon)] = KiB(std::strtoull(line.c_str() + colon + 1, nullptr, 10)).count;
  }
  return sizes;
}

// Samples the process's memory. The kernel walks all its pages: milliseconds for a large process.
void sample_memory(pid_t process, RankSamples& samples) {
  auto status = sizes_in(process, "status"), rollup = sizes_in(process, "smaps_rollup");
  samples.peak_pss_bytes = std::max(samples.peak_pss_bytes, rollup["Pss"]);
  samples.peak_resident_bytes =
      std::max(samples.peak_resident_bytes, status["RssAnon"] + status["RssFile"] + rollup["Pss_Shmem"]);
}

// Returns the bytes sent through `interface` of the process's network namespace, as the kernel counts them
// (with headers); 0 if there is no such interface.
std::uint64_t bytes_sent(pid_t process, const std::string& interface) {
  std::ifstream file(str("/proc/", process, "/net/dev"));
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || trim(line.substr(0, colon)) != interface) continue;
    // The first eight numbers are about received data.
    std::istringstream figures(line.substr(colon + 1));
    std::uint64_t value = 0;
    for (int column = 0; column < 9; ++column) figures >> value;
    return value;
  }
  return 0;
}

// Returns the bytes that each host has sent so far; empty if ranks are not on emulated hosts.
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

void append(const nlohmann::json& answer, const char* key, bool without_first, std::vector<double>& values) {
  if (!answer.contains(key)) return;
  const auto all = answer.at(key).get<std::vector<double>>();
  values.insert(values.end(), all.begin() + (without_first && all.size() > 1 ? 1 : 0), all.end());
}

void run_burst(Contestant& contestant, int steps, bool counts) {
  const std::vector<std::uint64_t> before = sent_by_host(contestant);
  const auto answers = contestant.fleet->ask(str("run ", steps), contestant.ranks);
  for (std::size_t rank = 0; rank < contestant.ranks; ++rank) {
    RankSamples& samples = contestant.samples[rank];
    append(answers[rank], "losses", false, samples.losses);
    if (!counts) continue;
    append(answers[rank], "step_ms", true, samples.step_ms);
    append(answers[rank], "comm_ms", true, samples.comm_ms);
    append(answers[rank], "exposed_comm_ms", true, samples.exposed_comm_ms);
    samples.matmul = answers[rank].value("matmul", samples.matmul);
  }
  const std::vector<std::uint64_t> after = sent_by_host(contestant);
  std::uint64_t most = 0;
  for (std::size_t host = 0; host < after.size(); ++host) most = std::max(most, after[host] - before[host]);
  if (!counts || after.empty()) return;
  contestant.link_bytes += most;
  contestant.link_steps += steps;
}

// Samples the processes' memory repeatedly while they train: from outside, hence alike for all systems.
void watch_memory(Contestant& contestant) {
  contestant.fleet->tell(str("memory ", kMemorySteps), contestant.ranks);
  std::vector<bool> done(contestant.ranks, false);
  const Deadline deadline = Deadline::after(std::chrono::minutes(10));
  while (std::find(done.begin(), done.end(), false) != done.end()) {
    for (std::size_t rank = 0; rank < contestant.ranks; ++rank) {
      const ChildProcess& worker = *contestant.fleet->workers[rank];
      sample_memory(worker.pid(), contestant.samples[rank]);
      done[rank] = done[rank] || worker.answers_within(std::chrono::milliseconds(1)) || deadline.passed();
    }
  }
  for (std::size_t rank = 0; rank < contestant.ranks; ++rank) {
    const nlohmann::json answer = contestant.fleet->answer_of(rank);
    RankSamples& samples = contestant.samples[rank];
    samples.peak_bytes = answer.value("peak_bytes", std::uint64_t{0});
    samples.peak_tensor_bytes = answer.value("peak_tensor_bytes", std::uint64_t{0});
    samples.peak_rss_bytes = answer.value("peak_rss_bytes", std::uint64_t{0});
  }
}

}  // namespace

void run_contest(std::vector<Contestant>& contestants, const Turns& turns) {
  for (Contestant& contestant : contestants) contestant.samples.assign(contestant.ranks, {});
  for (int round = turns.warm_up > 0 ? -1 : 0; round < turns.rounds; ++round) {
    for (Contestant& contestant : contestants)
      run_burst(contestant, round < 0 ? turns.warm_up : turns.steps, round >= 0);
  }
  for (Contestant& contestant : contestants) watch_memory(contestant);
}

}  // namespace rondo::bench
