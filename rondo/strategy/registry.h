#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/precision/mixed_precision_policy.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// What of a rank's own lives in memory-mapped files instead of memory (docs/sharded.md, on a CPU device).
struct OffloadOptions {
  std::string directory = {};  // for the files; empty: everything stays in memory
  bool parameters = true;      // the rank's shards of parameters, where they are kept apart
  bool optimizer = true;       // what the optimizer keeps for each parameter

  bool any() const { return !directory.empty() && (parameters || optimizer); }
};

// What strategies may be told; each takes what concerns it.
struct StrategyOptions {
  Bytes bucket_bytes = MiB(25);         // gradients are reduced in buckets of about this size
  Bytes first_bucket_bytes = MiB(1);    // a small first bucket starts communication early
  std::string codec = "none";           // ddp: how gradients travel, a name for make_comm_hook
  bool find_unused_parameters = false;  // some parameters get no gradient in some steps
  bool static_graph = false;            // the same parameters get gradients in every step
  bool broadcast_buffers = true;        // buffers follow rank 0's before each forward pass
  int check_parameters_every = 0;       // steps between checks that parameters agree across ranks; 0 is never

  // Strategies by unit (zero1, zero2, zero3, ...).
  std::string plan = {};            // planned: a file that `rondo plan` wrote
  std::string plan_text = {};       // planned: instead of a file, what would be in it
  std::uint64_t strategy_seed = 0;  // random: of the draw
  int shard_ranks = 0;              // hsdp: ranks that share one copy of the model; 0 is those of a host
  // Gradients of every pass of an accumulation window are reduced at once and added up as shards, instead of
  // whole on every rank until the last: less memory, more communication. zero2, zero3, zero3_keep.
  bool reduce_every_pass = false;
  std::string schedule = "priority";  // order of communication: fifo, priority or random
  std::uint64_t schedule_seed = 0;    // random: of the order
  Bytes block_bytes = MiB(4);         // of a unit that travel at a time between hosts; 0 is whole units
  Bytes credit_bytes = MiB(16);       // under way at a time between hosts; 0 is no limit
  Bytes fuse_bytes = {};              // units that are together no larger travel as one; 0 is none
  int prefetch = 2;                   // units gathered ahead of their use; 0 is none
  // Units whose whole gradients may be on their way at a time, before backward waits for the oldest; 0 is no
  // limit. All strategies by unit but ddp, between hosts.
  int gradients_in_flight = 2;
  MixedPrecisionPolicy mixed_precision = {};  // what units compute and communicate in
  // zero3: among how many neighbouring ranks parameters stay sharded between forward and backward, as the
  // number that FSDP2's reshard_after_forward takes. 0 is all (its true), 1 keeps them whole (its false).
  int reshard_ranks = 0;
  OffloadOptions offload = {};
};

// For strategies that do not work by unit: throws UsageError, naming `strategy`, when the options ask for
// what only units have (mixed precision, resharding, offload).
void refuse_options_of_units(const std::string& strategy, const StrategyOptions& options);

using StrategyFactory = std::function<std::unique_ptr<Strategy>(const Context&, const StrategyOptions&)>;

// Strategies by name. A value, not a global: a program adds its own to the registry that it hands on.
class StrategyRegistry {
 public:
  // Adds a strategy; one of the same name is replaced. `summary` is one line for help texts.
  void add(std::string name, std::string summary, StrategyFactory factory);
  // Another name for one that was added. Throws UsageError when there is none.
  void add_alias(const std::string& alias, const std::string& name);

  // Throws UsageError listing the known names when `name` is not one of them.
  std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                 const StrategyOptions& options = {}) const;
  // The name that `name` stands for (itself, unless it is an alias); throws as make() does.
  const std::string& resolve(const std::string& name) const;

  // Names without aliases, sorted, and what add() was told about each.
  std::vector<std::string> names() const;
  const std::string& summary(const std::string& name) const;

 private:
  struct Entry {
    std::string summary;
    StrategyFactory factory;
  };
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> aliases_;
};

// A registry with the strategies that need no communication (one_device). rondo/parallel/registry.h has them
// all.
StrategyRegistry local_strategies();

}  // namespace rondo
