#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench/child_process.h"
#include "apps/bench/emulated_hosts.h"
#include "apps/bench/step/step_case.h"
#include "rondo/base/time.h"

namespace rondo::bench {

// Processes that were started together: the ranks of one system.
struct Fleet {
  std::vector<std::unique_ptr<ChildProcess>> workers;
  int hosts = 1;

  int host_of(int rank) const {
    return EmulatedHosts::host_of(rank, static_cast<int>(workers.size()), hosts);
  }
};

// Where fleets run.
struct FleetPlace {
  int ranks = 2;
  bool pinned = true;                    // each process to a processor of its own
  const EmulatedHosts* hosts = nullptr;  // null: this machine itself
  std::filesystem::path scratch = {};    // where ranks meet
  Duration patience = std::chrono::minutes(10);
};

// Starts the processes of one system, each pinned to a processor unless `place` says otherwise, with what all
// systems are told about the case added to `command`, and waits until they are ready. `name` is for messages
// and unique in the place.
std::shared_ptr<Fleet> start_fleet(const std::string& name, std::vector<std::string> command,
                                   std::map<std::string, std::string> environment, const StepCase& training,
                                   const FleetPlace& place);

}  // namespace rondo::bench
