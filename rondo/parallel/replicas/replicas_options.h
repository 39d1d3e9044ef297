#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/parallel/ddp/ddp_strategy_options.h"

namespace rondo {

class Context;
class Strategy;

// Options of all strategies with several replicas per process.
struct ReplicasOptions {
  int replicas = 1;  // number of replicas in this process
  // Devices of the replicas, such as "cpu" or "cuda:1", instead of `replicas`. The CPU may be repeated.
  // Empty: the recipe's device, on CUDA the devices from that one on.
  std::vector<std::string> devices = {};
};

// Options of strategy "mirrored".
struct MirroredOptions : ReplicasOptions {
  std::string cross_device_ops = "all_reduce";  // algorithm for reducing gradients
  int num_packs = 1;  // packs of gradients that replicas divide among themselves; 0: each gradient separately
};

// Options of strategy "multi_worker_mirrored". With one replica per process it is ddp, and the options of ddp
// apply.
struct MultiWorkerMirroredOptions : DdpStrategyOptions, ReplicasOptions {
  Bytes bytes_per_pack = {};                     // size of packs of gradients between workers; 0 is 25 MiB
  std::string implementation = "auto";           // "auto" (the engine's choice), "nccl" or "ring"
  std::optional<std::string> pack_timeout = {};  // timeout per pack; empty: the job's
};

// Registration of strategy "mirrored": declarations (without libtorch) and the factory.
struct MirroredStrategyFactory {
  using Options = MirroredOptions;                 // options of strategy "mirrored"
  static std::vector<Declaration> declarations();  // declarations of strategy "mirrored"
  // Returns a new strategy. Throws UsageError for options that contradict each other or the job.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};
// Registration of strategy "central_storage".
struct CentralStorageStrategyFactory {
  using Options = ReplicasOptions;                 // options of strategy "central_storage"
  static std::vector<Declaration> declarations();  // declarations of strategy "central_storage"
  // Returns a new strategy. Throws UsageError for options that contradict each other or the job.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};
// Registration of strategy "data_parallel".
struct DataParallelStrategyFactory {
  using Options = ReplicasOptions;                 // options of strategy "data_parallel"
  static std::vector<Declaration> declarations();  // declarations of strategy "data_parallel"
  // Returns a new strategy. Throws UsageError for options that contradict each other or the job.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};
// Registration of strategy "multi_worker_mirrored".
struct MultiWorkerMirroredStrategyFactory {
  using Options = MultiWorkerMirroredOptions;      // options of strategy "multi_worker_mirrored"
  static std::vector<Declaration> declarations();  // declarations of strategy "multi_worker_mirrored"
  // Returns a new strategy. Throws UsageError for options that contradict each other or the job.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
