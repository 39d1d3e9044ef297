#include "apps/bench/harness/fleet.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <iostream>
#include <utility>

#include "apps/common/flag_checks.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

constexpr auto kPatience = std::chrono::minutes(10);

}  // namespace

void add_network_flags(CLI::App& app, Network& network) {
  app.add_option("--emulate-hosts", network.hosts, "number of emulated hosts for the ranks (needs root)")
      ->check(between(1, 200));
  app.add_option("--rate", network.rate, "link rate of the emulated hosts, such as 1gbit");
}

void check_network(Network& network, int ranks) {
  network.bits_per_second = bits_per_second(network.rate);
  if (ranks % network.hosts != 0)
    throw UsageError(str("--ranks ", ranks, " does not divide among --emulate-hosts ", network.hosts));
}

std::function<bool()> add_turns_flags(CLI::App& app, Turns& turns, const std::string& note) {
  auto* rounds = app.add_option("--rounds", turns.rounds, "alternating measurements per system" + note);
  auto* steps =
      app.add_option("--steps", turns.steps, "steps per turn; of several, the first is not measured" + note);
  auto* warm_up = app.add_option("--warm-up", turns.warm_up, "steps before measuring" + note);
  rounds->check(positive_number());
  steps->check(positive_number());
  warm_up->check(not_negative_number());
  return [=] { return *rounds || *steps || *warm_up; };
}

void Fleet::tell(const std::string& line, std::size_t ranks) {
  for (std::size_t rank = 0; rank < ranks; ++rank) workers[rank]->write_line(line);
}

nlohmann::json Fleet::answer_of(std::size_t rank) {
  return workers[rank]->read_json(Deadline::after(kPatience));
}

std::vector<nlohmann::json> Fleet::ask(const std::string& line, std::size_t ranks) {
  tell(line, ranks);
  std::vector<nlohmann::json> answers;
  for (std::size_t rank = 0; rank < ranks; ++rank) answers.push_back(answer_of(rank));
  return answers;
}

std::shared_ptr<Fleet> start_fleet(const std::string& name, std::vector<std::string> command,
                                   std::map<std::string, std::string> environment, const StepCase& training,
                                   const FleetPlace& place) {
  std::string meeting = name;
  std::replace_if(
      meeting.begin(), meeting.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
      '-');
  const std::pair<const char*, std::string> flags[] = {
      {"--config", training.config.dump()},
      {"--weights", training.weights},
      {"--dtype", training.dtype},
      {"--batch-size", str(training.batch_size)},
      {"--lr", str(training.learning_rate)},
      {"--max-grad-norm", str(training.clip_norm)},
      {"--optimizer", training.optimizer},
      {"--codec", training.codec},
      {"--world-size", str(place.ranks)},
      {"--rendezvous", "file://" + (place.scratch / meeting).string()}};
  for (const auto& [flag, value] : flags) command.insert(command.end(), {flag, value});
  if (!training.mixed_precision.empty())
    command.insert(command.end(), {"--mixed-precision", training.mixed_precision});
  if (training.tracks_memory) command.emplace_back("--track-memory");
  if (place.pinned) environment["OMP_NUM_THREADS"] = environment["MKL_NUM_THREADS"] = "1";
  const auto processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  auto fleet = std::make_shared<Fleet>();
  for (int rank = 0; rank < place.ranks; ++rank) {
    ChildPlace where;
    if (place.pinned) where.processor = rank % processors;
    if (place.hosts != nullptr) {
      const int host = EmulatedHosts::host_of(rank, place.ranks, place.hosts->count());
      where.network_namespace = place.hosts->network_namespace(host);
      environment["GLOO_SOCKET_IFNAME"] = EmulatedHosts::interface(host);
    }
    std::vector<std::string> words = command;
    words.insert(words.end(), {"--rank", str(rank)});
    fleet->workers.push_back(
        std::make_unique<ChildProcess>(str("process ", rank, " of '", name, "'"), words, environment, where));
  }
  if (place.hosts != nullptr) fleet->hosts = place.hosts->count();
  for (const auto& worker : fleet->workers) worker->read_line(Deadline::after(kPatience));
  return fleet;
}

void add_worker_flags(CLI::App& command, WorkerOptions& options) {
  StepCase& training = options.training;
  command.add_option("--strategy", options.strategy)->required();
  command.add_option("--model", training.model)->required();
  command.add_option("--config", options.config)->required();
  command.add_option("--weights", training.weights)->required();
  command.add_option("--dtype", training.dtype)->required();
  command.add_option("--batch-size", training.batch_size)->required();
  command.add_option("--lr", training.learning_rate)->required();
  command.add_option("--max-grad-norm", training.clip_norm);
  command.add_option("--optimizer", training.optimizer)->required();
  command.add_option("--codec", training.codec);
  command.add_option("--rank", options.rank)->required();
  command.add_option("--world-size", options.world_size)->required();
  command.add_option("--rendezvous", options.rendezvous)->required();
}

void answer_lines(const std::function<nlohmann::json(const std::string& command, int steps)>& answer) {
  std::cout << nlohmann::json{{"ready", true}}.dump() << std::endl;
  std::string command;
  int steps = 0;
  while (std::cin >> command >> steps) std::cout << answer(command, steps).dump() << std::endl;
}

}  // namespace rondo::bench
