#include <ATen/Parallel.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "apps/bench/collectives/collectives.h"
#include "apps/bench/harness/emulated_hosts.h"
#include "apps/bench/harness/processes.h"
#include "rondo/backend/context.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/codec.h"

namespace rondo::bench {
namespace {

constexpr int kHosts = 2;

// Returns an engine over world ranks that are numbered host by host, or alternating between hosts.
c10::intrusive_ptr<c10d::Backend> make_engine(const std::string& name, const std::string& order,
                                              const Group& world, bool deterministic) {
  BackendRequest request;
  request.deterministic = deterministic;
  request.group_name = str(name, " ", order);
  request.size = world.size();
  for (int i = 0; i < world.size(); ++i) {
    const int rank = order == "by host" ? i : i / kHosts + i % kHosts * (world.size() / kHosts);
    if (rank == world.rank()) request.rank = i;
    request.world_ranks.push_back(rank);
    request.hosts.push_back(str("host ", EmulatedHosts::host_of(rank, world.size(), kHosts)));
    request.host_names.push_back(request.hosts.back());
  }
  request.store = c10::make_intrusive<c10d::PrefixStore>(request.group_name, world.store());
  return make_backend(name, request);
}

std::unique_ptr<Contender> make_competitor(const Labels& labels, const std::string& engine,
                                           const Group& world, bool deterministic) {
  const auto backend = make_engine(engine, labels.rank_order, world, deterministic);
  // Each host's sum is encoded once.
  const double largest_sum = world.size() * (world.size() + 1) / 2.0;
  const double tolerance =
      1e-4 * largest_sum + kHosts * collective::make_codec(labels.codec)->error_bound(largest_sum);
  const auto run = [backend](const at::Tensor& buffer) {
    std::vector<at::Tensor> tensors = {buffer};
    backend->allreduce(tensors)->wait();
  };
  return make_exercise_contender(
      labels, [](const Case&) { return true; },
      [=](const Case& what) {
        const at::Tensor buffer =
            make_buffer(static_cast<std::int64_t>(what.bytes.count / sizeof(float)), what.dtype,
                        labels.registered ? Memory::registered : Memory::ordinary);
        Exercise exercise = make_inexact_all_reduce(backend, buffer, /*average=*/false, tolerance, run, run);
        exercise.warm_ups = 1;
        return exercise;
      });
}

Json measure_rank(const CollectivesSettings& settings, const EmulatedHosts& hosts, int rank, int ranks,
                  const std::string& options) {
  const int host = EmulatedHosts::host_of(rank, ranks, kHosts);
  hosts.enter(host);
  setenv("GLOO_SOCKET_IFNAME", EmulatedHosts::interface(host).c_str(), 1);
  at::set_num_threads(1);
  const Context context = init({.host = str("host ", host)});
  std::vector<std::unique_ptr<Contender>> competitors;
  for (const std::string order : {"by host", "in turns"}) {
    const auto add = [&](const std::string& system, const std::string& codec, const std::string& engine) {
      const bool ours = system == "rondo";
      const Labels labels = {.system = system,
                             .algorithm = ours ? "hierarchical" : "auto",
                             .channel = "tcp",
                             .registered = ours,
                             .codec = codec,
                             .rank_order = order};
      competitors.push_back(make_competitor(labels, engine, context.world(), ours && settings.deterministic));
    };
    for (const std::string& codec : settings.codecs) {
      add("rondo", codec,
          str("hierarchical(native, gloo, codec=", codec, options.empty() ? "" : ", ", options, ")"));
    }
    if (settings.peers) add("gloo", "none", "gloo");
  }
  return measure_cases(settings, competitors, context.world());
}

}  // namespace

Json measure_across_hosts(const CollectivesSettings& settings, const std::string& rate,
                          const std::string& options) {
  CollectivesSettings across = settings;
  across.operations = {"all_reduce"};
  across.dtype = at::kFloat;
  across.fresh = false;
  across.effort.burst = Duration::zero();
  across.effort.least_samples = 1;
  across.codecs.insert(across.codecs.begin(), "none");
  Json all = Json::array();
  for (const int ranks : settings.ranks) {
    if (ranks % kHosts != 0)
      throw UsageError(str("--ranks ", ranks, " does not divide among ", kHosts, " hosts"));
    const EmulatedHosts hosts(kHosts, rate);
    Json rows =
        spawn_for_json(ranks, [&](int rank) { return measure_rank(across, hosts, rank, ranks, options); });
    for (Json& row : rows) {
      row.update({{"hosts", kHosts}, {"rate", rate}});
      all.push_back(std::move(row));
    }
  }
  return all;
}

}  // namespace rondo::bench
