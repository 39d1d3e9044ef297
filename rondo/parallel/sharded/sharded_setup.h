#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/parallel/sharded/segment_schedule.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/parallel/sharded/sharded_unit.h"
#include "rondo/parallel/sharded/unit_memory.h"
#include "rondo/parallel/sharded/unit_plans.h"

namespace rondo {

// The components of a sharded model: groups of ranks, the shared queue and buffers, the units, and the module
// for the optimizer. Does not change after construction.
class ShardedSetup {
 public:
  // Copies rank 0's parameters and buffers to all ranks. Throws UsageError for a plan that does not fit the
  // model, and MismatchError if ranks have different models. `module` and `tensors` must outlive the object.
  // Collective.
  ShardedSetup(torch::nn::Module& module, const ModelTensors& tensors, const PlanMaker& make_plan,
               Context& context, const ShardedOptions& options);

  const bool in_background;  // whether the engine works in the background, so that the queue has a thread
  std::unique_ptr<OffloadFiles> files;  // null without offload
  BufferPool buffers;
  UnitEnvironment environment;
  cost::StepPlan plan;
  std::optional<SlotLaunches> launches;       // the plan's schedule, if segments are queued
  std::unique_ptr<CommunicationQueue> queue;  // shared by all units
  std::vector<UnitGroup> groups;              // parameters of each unit
  ShardedUnits units;
  std::shared_ptr<torch::nn::Module> optimized;  // module whose parameters the optimizer updates

 private:
  void make_groups(Context& context, const ShardedOptions& options);
  void prepare_offload(const ModelTensors& tensors, int rank, const OffloadOptions& options);
  void make_queue(Context& context, const ShardedOptions& options);
  void group_units(std::vector<ModelUnit> units, const Context& context, const ShardedOptions& options,
                   bool could_have_units);
  void make_units();
};

}  // namespace rondo
