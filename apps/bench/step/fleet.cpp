#include "apps/bench/step/fleet.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "rondo/base/text.h"

namespace rondo::bench {

std::shared_ptr<Fleet> start_fleet(const std::string& name, std::vector<std::string> command,
                                   std::map<std::string, std::string> environment, const StepCase& training,
                                   const FleetPlace& place) {
  const auto add = [&](const char* flag, const std::string& value) {
    command.emplace_back(flag);
    command.push_back(value);
  };
  add("--config", training.config.dump());
  add("--weights", training.weights);
  add("--dtype", training.dtype);
  add("--batch-size", str(training.batch_size));
  add("--lr", str(training.learning_rate));
  add("--max-grad-norm", str(training.clip_norm));
  add("--optimizer", training.optimizer);
  add("--codec", training.codec);
  if (!training.mixed_precision.empty()) add("--mixed-precision", training.mixed_precision);
  if (training.tracks_memory) command.emplace_back("--track-memory");
  add("--world-size", str(place.ranks));
  std::string file = name;
  std::replace_if(
      file.begin(), file.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '-');
  add("--rendezvous", "file://" + (place.scratch / file).string());
  command.emplace_back("--rank");
  if (place.pinned) environment["OMP_NUM_THREADS"] = environment["MKL_NUM_THREADS"] = "1";
  const auto processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  auto fleet = std::make_shared<Fleet>();
  for (int rank = 0; rank < place.ranks; ++rank) {
    ChildPlace where;
    if (place.pinned) where.processor = rank % processors;
    if (place.hosts) {
      const int host = EmulatedHosts::host_of(rank, place.ranks, place.hosts->count());
      where.network_namespace = place.hosts->network_namespace(host);
      environment["GLOO_SOCKET_IFNAME"] = EmulatedHosts::interface(host);
    }
    command.push_back(str(rank));
    fleet->workers.push_back(std::make_unique<ChildProcess>(str("process ", rank, " of '", name, "'"),
                                                            command, environment, where));
    command.pop_back();
  }
  if (place.hosts) fleet->hosts = place.hosts->count();
  for (const auto& worker : fleet->workers) worker->read_line(Deadline::after(place.patience));
  return fleet;
}

}  // namespace rondo::bench
