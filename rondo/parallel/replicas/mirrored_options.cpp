#include "rondo/parallel/replicas/replicas_options.h"

#include "rondo/base/text.h"

namespace rondo {
namespace {

// Advice of the strategies with replicas as threads.
constexpr const char* kOnSeveralProcesses = "use multi_worker_mirrored, or give --replicas alone";

OptionsOf<ReplicasOptions> replicas_table() {
  OptionsOf<ReplicasOptions> table;
  table.begin_group("Replicas in one process");
  table.add("replicas", &ReplicasOptions::replicas, "Replicas of the model in each process, one thread each",
            above_zero());
  table.add("devices", &ReplicasOptions::devices,
            "Device of each replica, instead of --replicas, such as cpu,cpu or cuda:0,cuda:1");
  table.without_flags({"devices"});
  return table;
}

int replicas_asked_for(const OptionValues& values) {
  if (const auto devices = values.find("devices"); devices != values.end())
    return static_cast<int>(split(devices->second, ',').size());
  const auto replicas = values.find("replicas");
  return replicas == values.end() ? 1 : static_cast<int>(parse_integer(replicas->second, "--replicas"));
}

}  // namespace

std::vector<Declaration> MirroredStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.include(replicas_table());
  table.begin_group("Replicas in one process");
  table.add("cross-device-ops", &Options::cross_device_ops,
            "How replicas combine gradients; nccl: NCCL, one GPU per replica",
            one_of({"all_reduce", "hierarchical_copy", "nccl", "one_device"}));
  table.add("mirrored-num-packs", &Options::num_packs,
            "Number of gradient packs that replicas share; 0: each gradient separately", zero_or_more());
  table.without_flags({"mirrored-num-packs"});
  return {{.name = "mirrored",
           .summary = "one process, a thread and a copy of the variables for each replica",
           .options = table,
           .on_several_processes = kOnSeveralProcesses,
           .replicas_per_process = replicas_asked_for}};
}

std::vector<Declaration> CentralStorageStrategyFactory::declarations() {
  return {{.name = "central_storage",
           .summary = "one process, one copy of the variables that all replicas use",
           .options = replicas_table(),
           .on_several_processes = kOnSeveralProcesses,
           .replicas_per_process = replicas_asked_for}};
}

std::vector<Declaration> DataParallelStrategyFactory::declarations() {
  return {{.name = "data_parallel",
           .summary = "one process: replicate, scatter, apply in parallel, gather on the first device",
           .options = replicas_table(),
           .on_several_processes = kOnSeveralProcesses,
           .replicas_per_process = replicas_asked_for}};
}

std::vector<Declaration> MultiWorkerMirroredStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.include(replicas_table());
  table.begin_group("Gradients between workers with several replicas");
  table.add("mwm-bytes-per-pack", &Options::bytes_per_pack,
            "Size of the gradient packs between workers; 0: 25MiB");
  table.add("mwm-implementation", &Options::implementation,
            "Allreduce of packs; auto: the engine's choice; nccl: NCCL, which it requires",
            one_of({"auto", "nccl", "ring"}));
  table.add("mwm-pack-timeout", &Options::pack_timeout, "Longest wait for a pack; default: --timeout",
            duration());
  table.without_flags({"mwm-bytes-per-pack", "mwm-implementation", "mwm-pack-timeout"});
  table.include(ddp_strategy_table());
  return {{.name = "multi_worker_mirrored",
           .summary = "several processes with several replicas each; with one replica each, it is ddp",
           .options = table,
           .replicas_per_process = replicas_asked_for}};
}

}  // namespace rondo
