#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/parallel/schedule/communication_options.h"
#include "rondo/precision/options.h"

namespace rondo {

class Context;
class Strategy;

// A rank's own data to keep in memory-mapped files instead of memory (docs/sharded.md). On a CPU device only.
struct OffloadOptions {
  std::string directory = {};  // directory of the files; empty: everything stays in memory
  bool parameters = true;      // the rank's shards of parameters, if they are stored separately
  bool optimizer = true;       // the optimizer's state per parameter

  // Returns true if anything is stored in files.
  bool any() const { return !directory.empty() && (parameters || optimizer); }
};

// Options of the strategies by unit: zero1, zero2, zero3, zero3_keep, hsdp, planned, random.
struct ShardedOptions : CommunicationOptions {
  bool find_unused_parameters = false;  // allows parameters without a gradient in some steps
  bool broadcast_buffers = true;        // whether forward passes first copy rank 0's buffers to all ranks
  std::string plan = {};                // planned: a file that `rondo plan` wrote
  std::string plan_text = {};           // planned: content of the file, in place of `plan`
  std::optional<std::uint64_t> strategy_seed = {};  // random: seed of the draw; empty is 0
  int shard_ranks = 0;  // hsdp: number of ranks that share one copy of the model; 0 is those of a host
  // Whether every pass of an accumulation window reduces its gradients and accumulates them as shards.
  // Otherwise whole gradients accumulate on every rank until the last pass. Costs more communication and less
  // memory. For zero2, zero3 and zero3_keep.
  bool reduce_every_pass = false;
  // Maximum number of units with whole gradients in flight between hosts before backward waits for the
  // oldest; 0 is no limit.
  int gradients_in_flight = 2;
  std::string codec = "none";  // codec of float32 gradients, a name for collective::make_codec()
  MixedPrecisionPolicy mixed_precision = {};  // dtypes of computation and communication
  // zero3: number of neighbouring ranks among which parameters stay sharded between forward and backward,
  // like reshard_after_forward of FSDP2. 0 is all ranks (its true), 1 keeps them whole (its false).
  int reshard_ranks = 0;
  OffloadOptions offload = {};  // data to keep in files
  // Names of parameters and buffers that stay whole and local to each rank: they are not compared, broadcast,
  // sharded or reduced. The prepared module does not contain them, so its optimizer does not update them and
  // checkpoints lack them. Not for planned.
  std::vector<std::string> ignored = {};
};

// Registration of the strategies by unit: declarations (without libtorch) and the factory.
struct ShardedStrategyFactory {
  using Options = ShardedOptions;                  // options of all strategies here
  static std::vector<Declaration> declarations();  // declarations of all strategies here
  // Returns a new strategy of that name.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
