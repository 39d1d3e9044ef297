#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/parallel/sharded/block_schedule.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/parallel/sharded/sharded_unit.h"
#include "rondo/parallel/sharded/unit_memory.h"
#include "rondo/parallel/sharded/unit_plans.h"

namespace rondo {

// What a sharded model is made of: groups of ranks, the queue and buffers that its units share, the units
// themselves, and what the optimizer is made of. Afterwards it does not change.
class ShardedSetup {
 public:
  // Collective. Gives all ranks rank 0's parameters and buffers. Throws UsageError for a plan that does not
  // fit the model, MismatchError when ranks have different models. `module` and `tensors` outlive the object.
  ShardedSetup(torch::nn::Module& module, const ModelTensors& tensors, const PlanMaker& make_plan,
               Context& context, const ShardedOptions& options);

  const bool in_background;             // the engine works there, and the queue has a thread
  std::unique_ptr<OffloadFiles> files;  // null without offload
  BufferPool buffers;
  UnitEnvironment environment;
  cost::StepPlan plan;
  std::optional<SlotLaunches> launches;       // of a plan's schedule, where blocks travel
  std::unique_ptr<CommunicationQueue> queue;  // of all units
  std::vector<UnitGroup> groups;              // by unit: whose parameters it has
  ShardedUnits units;
  std::shared_ptr<torch::nn::Module> optimized;  // what an optimizer is made of

 private:
  void make_groups(Context& context, const ShardedOptions& options);
  void prepare_offload(const ModelTensors& tensors, int rank, const OffloadOptions& options);
  void make_queue(Context& context, const ShardedOptions& options);
  void group_units(std::vector<ModelUnit> units, const PlanMaker& make_plan, const Context& context,
                   const ShardedOptions& options, bool could_have_units);
  void make_units();
};

}  // namespace rondo
