#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/parallel/ddp/ddp_strategy_options.h"

namespace rondo {

class Context;
class Strategy;

// Of every strategy with several replicas in a process.
struct ReplicasOptions {
  int replicas = 1;  // in this process
  // Of the replicas, as "cpu", "cuda:1": instead of `replicas`. The CPU may stand several times. Empty: where
  // the recipe says, on CUDA the devices from there on.
  std::vector<std::string> devices = {};
};

// Of strategy mirrored.
struct MirroredOptions : ReplicasOptions {
  std::string cross_device_ops = "all_reduce";  // how replicas combine gradients
  int num_packs = 1;                            // in which they are divided for that; 0: each by itself
};

// Of strategy multi_worker_mirrored; with one replica a process it is ddp, whose options then hold.
struct MultiWorkerMirroredOptions : DdpStrategyOptions, ReplicasOptions {
  Bytes bytes_per_pack = {};                     // of gradients between workers; 0 is 25 MiB
  std::string implementation = "auto";           // "auto": the engine's choice, "nccl" or "ring"
  std::optional<std::string> pack_timeout = {};  // longest wait for a pack; empty: the job's
};

// Strategies of one replica a thread: what each is called and can be told (without libtorch), and how it is
// made.
struct MirroredFolder {
  using Options = MirroredOptions;                 // of strategy mirrored
  static std::vector<Declaration> declarations();  // of strategy mirrored
  // Makes the strategy. Throws UsageError for options that contradict each other or the job.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};
// The same of strategy central_storage.
struct CentralStorageFolder {
  using Options = ReplicasOptions;                 // of strategy central_storage
  static std::vector<Declaration> declarations();  // of strategy central_storage
  // Makes the strategy. Throws UsageError for options that contradict each other or the job.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};
// The same of strategy data_parallel.
struct DataParallelFolder {
  using Options = ReplicasOptions;                 // of strategy data_parallel
  static std::vector<Declaration> declarations();  // of strategy data_parallel
  // Makes the strategy. Throws UsageError for options that contradict each other or the job.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};
// The same of strategy multi_worker_mirrored.
struct MultiWorkerMirroredFolder {
  using Options = MultiWorkerMirroredOptions;      // of strategy multi_worker_mirrored
  static std::vector<Declaration> declarations();  // of strategy multi_worker_mirrored
  // Makes the strategy. Throws UsageError for options that contradict each other or the job.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
