#include "apps/bench/collectives/contenders.h"

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "apps/bench/collectives/explain.h"
#include "apps/bench/collectives/openmpi_contender.h"
#include "apps/bench/collectives/plan_contender.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/point_to_point_channel.h"
#include "rondo/backend/registry.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_memory_channel.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/chooser/chooser.h"

namespace rondo::bench {
namespace {

c10::intrusive_ptr<c10d::Backend> make_peer_engine(const std::string& name, const Group& world,
                                                   const std::string& purpose = "peer") {
  BackendRequest request;
  request.group_name = str("bench-", name, "-", purpose);
  request.rank = world.rank();
  request.size = world.size();
  request.world_ranks = world.ranks();
  request.store = c10::make_intrusive<c10d::PrefixStore>(request.group_name, world.store());
  return make_backend(name, request);
}

std::shared_ptr<Channel> make_channel(const std::string& name, const Group& world, const ThreadMesh* mesh) {
  if (name == "threads") return mesh->connect(world.rank());
  const auto store = std::make_shared<StoreFromC10d>(world.store());
  const Duration timeout = std::chrono::minutes(5);
  if (name == "shm") {
    return std::make_shared<SharedMemoryChannel>(
        *store, SharedMemoryChannel::Options{"bench", world.rank(), world.size(), timeout});
  }
  return std::make_shared<PointToPointChannel>(make_peer_engine("gloo", world, "plans"), store, "bench-tcp",
                                               timeout);
}

// What the chooser picks from, each as a user of the group gets it: the engine, and every algorithm behind
// the same calls and on the same memory.
std::vector<std::unique_ptr<Contender>> make_candidates(const CollectivesSettings& settings,
                                                        const Group& world) {
  std::vector<std::unique_ptr<Contender>> candidates;
  const auto add = [&](const std::string& choice, const std::string& label, auto can) {
    setenv("RONDO_ALGORITHM", choice.c_str(), 1);
    const auto backend = make_peer_engine("native", world, choice);
    unsetenv("RONDO_ALGORITHM");
    candidates.push_back(
        make_exercise_contender({"rondo", label, "shm", true, true}, can, [backend](const Case& what) {
          return make_exercise(what.operation, backend, what.bytes, what.dtype, Memory::registered,
                               /*direct=*/true);
        }));
  };
  add(collective::kEngine, "auto", [](const Case&) { return true; });
  for (const std::string& algorithm : settings.algorithms) {
    add(algorithm, algorithm, [algorithm](const Case& what) {
      const auto& operations = collective::find_algorithm(algorithm).operations;
      return std::any_of(operations.begin(), operations.end(),
                         [&](OperationKind operation) { return what.operation == name(operation); });
    });
  }
  return candidates;
}

}  // namespace

std::vector<std::unique_ptr<Contender>> make_contenders(const CollectivesSettings& settings,
                                                        const Group& world, const ThreadMesh* mesh) {
  if (settings.tune && mesh == nullptr) return make_candidates(settings, world);
  std::vector<std::unique_ptr<Contender>> contenders;
  const std::string memory = mesh != nullptr ? "threads" : "shm";
  contenders.push_back(
      make_backend_contender({"rondo", "auto", memory, true, true}, world.backend(), Memory::registered));
  contenders.push_back(
      make_backend_contender({"rondo", "auto", memory, true, false}, world.backend(), Memory::registered));
  contenders.push_back(
      make_backend_contender({"rondo", "auto", memory, false, true}, world.backend(), Memory::ordinary));
  for (const std::string& codec : settings.codecs) {
    contenders.push_back(make_backend_contender({"rondo", "auto", memory, false, false, codec},
                                                world.backend(), Memory::ordinary));
  }
  for (const std::string& name : settings.channels) {
    if (settings.algorithms.empty() || (name == "threads") != (mesh != nullptr)) continue;
    const std::shared_ptr<Channel> channel = make_channel(name, world, mesh);
    for (const std::string& algorithm : settings.algorithms) {
      contenders.push_back(make_plan_contender(
          algorithm, name, channel, spread_over_hosts(world.size(), settings.hosts), settings.deterministic));
    }
  }
  if (!settings.peers || mesh != nullptr) return contenders;
  const auto gloo = make_peer_engine("gloo", world);
  contenders.push_back(make_backend_contender({"gloo", "auto", "tcp", false}, gloo, Memory::ordinary));
  for (const std::string& codec : settings.codecs) {
    contenders.push_back(
        make_backend_contender({"rondo", "auto", "tcp", false, false, codec}, gloo, Memory::ordinary));
  }
  if (why_no_openmpi().empty()) contenders.push_back(make_openmpi_contender(world.rank(), world.size()));
  return contenders;
}

}  // namespace rondo::bench
