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

// What of a rank's own lives in memory-mapped files instead of memory (docs/sharded.md, on a CPU device).
struct OffloadOptions {
  std::string directory = {};  // for the files; empty: everything stays in memory
  bool parameters = true;      // the rank's shards of parameters, where they are kept apart
  bool optimizer = true;       // what the optimizer keeps for each parameter

  // Whether anything goes to files.
  bool any() const { return !directory.empty() && (parameters || optimizer); }
};

// Of the strategies by unit: zero1, zero2, zero3, zero3_keep, hsdp, planned, random.
struct ShardedOptions : CommunicationOptions {
  bool find_unused_parameters = false;              // some parameters get no gradient in some steps
  bool broadcast_buffers = true;                    // buffers follow rank 0's before each forward pass
  std::string plan = {};                            // planned: a file that `rondo plan` wrote
  std::string plan_text = {};                       // planned: instead of a file, what would be in it
  std::optional<std::uint64_t> strategy_seed = {};  // random: of the draw; empty is 0
  int shard_ranks = 0;  // hsdp: ranks that share one copy of the model; 0 is those of a host
  // Gradients of every pass of an accumulation window are reduced at once and added up as shards, instead of
  // whole on every rank until the last: less memory, more communication. zero2, zero3, zero3_keep.
  bool reduce_every_pass = false;
  // Units whose whole gradients may be on their way at a time between hosts, before backward waits for the
  // oldest; 0 is no limit.
  int gradients_in_flight = 2;
  std::string codec = "none";  // how float32 gradients travel, a name for collective::make_codec
  MixedPrecisionPolicy mixed_precision = {};  // what units compute and communicate in
  // zero3: among how many neighbouring ranks parameters stay sharded between forward and backward, as the
  // number that FSDP2's reshard_after_forward takes. 0 is all (its true), 1 keeps them whole (its false).
  int reshard_ranks = 0;
  OffloadOptions offload = {};  // what lives in files
  // Names of parameters and buffers that are none of the strategy's business: each rank has its own, whole,
  // and they are neither compared nor broadcast nor sharded nor reduced. The prepared module does not have
  // them, so its optimizer does not change them, and checkpoints lack them. Not of planned.
  std::vector<std::string> ignored = {};
};

// This folder's strategies: what they are called and can be told (without libtorch), and how one is made.
struct ShardedFolder {
  using Options = ShardedOptions;                  // of every strategy of the folder
  static std::vector<Declaration> declarations();  // of every strategy of the folder
  // Makes the strategy of that name.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
