#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "rondo/cost/profile.h"
#include "rondo/cost/strategy.h"
#include "rondo/pipeline/schedule.h"
#include "rondo/pipeline/simulation.h"

namespace rondo::simulate {

// Ranks along the dimensions of a mesh, and what each replica computes in a step.
struct MeshShape {
  int pipeline = 1;
  int data = 1;
  int tensor = 1;
  double samples = 1;  // of a replica and pass
  int passes = 1;      // accumulated in a step
  int context = 1;
  int expert = 1;

  int ranks() const { return pipeline * data * context * expert * tensor; }
  // Ranks with the same parameters, but for experts: what a strategy along data sees.
  int copies() const { return data * context * expert; }
};

// What connects the ranks along each dimension.
struct MeshLinks {
  cost::Link pipeline, data, tensor, context, expert;
};
// The same link along all of them.
MeshLinks same_links(const cost::Link& link);

// What one rank computes and keeps of a layer, for some number of samples. Seconds with the communication
// among the ranks that divide the layer.
struct LayerCost : cost::LayerPasses {
  std::string name;
  std::string unit;
  double optimizer_s = 0;  // for all of its parameters that the rank has
  std::uint64_t parameter_bytes = 0;
  std::uint64_t gradient_bytes = 0;
  std::uint64_t own_gradient_bytes = 0;  // as cost::UnitProfile has it
  std::uint64_t optimizer_bytes = 0;
  std::uint64_t checkpointed_activation_bytes = 0;
  std::uint64_t output_bytes = 0;
  // The largest of any pass.
  std::uint64_t workspace_bytes() const {
    return std::max(
        {forward_workspace_bytes, backward_workspace_bytes, input_workspace_bytes, weight_workspace_bytes});
  }
};

// What the engine takes for a group of so many ranks.
std::uint64_t engine_bytes_of_group(const cost::Profile& profile, int ranks);
// The same for the groups along the mesh's dimensions: data always is one, others where they
// have several ranks, and one of all ranks shares the world's. Ranks along context and expert have groups for
// their parameters and tokens besides (rondo/parallel/strategy_on_mesh.h, experts/expert_strategy.h).
std::uint64_t engine_bytes_of_groups(const cost::Profile& profile, const MeshShape& shape);

// The profile's layers. Where it has none, its units in their order: not divided, half of a backward pass for
// the gradients of inputs, with an output as large as what a checkpointed unit keeps, which is its input.
std::vector<cost::LayerProfile> layers_of(const cost::Profile& profile);

// Of every layer as the mesh divides it along tensor, context or expert. Throws UsageError for a mesh that
// divides it along two of them, and naming the first layer that the profile does not know divided so.
std::vector<LayerCost> layer_costs(const cost::Profile& profile, const MeshShape& shape, double samples,
                                   const MeshLinks& links);

// The profile of what one rank has of each unit, for so many samples. Times contain the communication among
// the ranks that divide layers; experts that are spread leave ddp as the only strategy. Throws as
// layer_costs() does, and for a unit without layers.
cost::Profile part_of_profile(const cost::Profile& profile, const MeshShape& shape, double samples,
                              const MeshLinks& links);

// How a replica is cut into stages, and what each rank of the pipeline does with its stages along data. A
// rank's stages are one unit there: gradients are combined when the last micro-batch is through.
struct PipelineChoice {
  std::string schedule = "1f1b";           // pipeline::schedule_names()
  int micro_batches = 1;                   // of a pass
  int chunks = 2;                          // interleaved: stages of a rank
  std::vector<int> first;                  // of each stage the first layer
  std::vector<cost::Strategy> strategies;  // by rank of the pipeline
  std::vector<bool> checkpointed;          // by layer
};

// What training holds of some layers' parameters, gradients and optimizer state, and how long it takes to
// combine and update them.
struct StateCost {
  std::uint64_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
  std::uint64_t own_gradient_bytes = 0;  // of gradients, as cost::UnitProfile has it
  double optimizer_s = 0;
  void add(const LayerCost& layer);

  // Under a strategy among so many ranks. `in_place`: as cost::Link::parameters_in_place.
  // Without gradients, which come in the first backward pass.
  std::uint64_t bytes_in_passes(cost::Strategy strategy, int ranks) const;
  std::uint64_t bytes_behind_passes(cost::Strategy strategy, int ranks, bool in_place) const;
  double update_s(cost::Strategy strategy, int ranks) const;
  double communication_s(cost::Strategy strategy, int ranks, const cost::Link& link) const;
};

// What a rank of the pipeline does in a step.
struct PipelineRank {
  double busy_s = 0;     // passes of micro-batches
  double idle_s = 0;     // waiting for other stages
  double exposed_s = 0;  // gradients and parameters along data
  double update_s = 0;
  std::uint64_t peak_bytes = 0;
};

struct PipelineForecast {
  double step_s = 0;
  std::uint64_t peak_bytes = 0;     // of the rank that needs most
  std::vector<PipelineRank> ranks;  // along the pipeline
  pipeline::Schedule schedule;
  pipeline::Simulation timeline;  // of one pass
  // The idle time of the rank that stands still longest, as a share of the step.
  double idle_share() const;
};

// A model on the ranks of a mesh with a pipeline, priced for micro-batches of one size.
class PipelineCosts {
 public:
  // Throws UsageError as layer_costs() does, and for fewer samples than micro-batches.
  PipelineCosts(const cost::Profile& profile, const MeshShape& shape, const MeshLinks& links,
                int micro_batches);

  const std::vector<LayerCost>& layers() const { return layers_; }
  const MeshShape& shape() const { return shape_; }
  std::uint64_t base_bytes() const { return base_bytes_; }
  bool in_place() const { return in_place_; }
  // Of layers [begin, end) as a stage whose backward passes are cut in two, or not. Of the first stage all is
  // the second part, since nobody waits for gradients of its inputs.
  pipeline::StageTimes stage_times(int begin, int end, bool splits,
                                   const std::vector<bool>& checkpointed) const;
  // Along data, of parameters and gradients of these.
  double communication_s(const StateCost& state, cost::Strategy strategy) const {
    return state.communication_s(strategy, shape_.copies(), links_.data);
  }
  // Simulates the schedule, with what follows it: gradients, the optimizer, parameters. Throws UsageError for
  // a choice that cannot be.
  PipelineForecast forecast(const PipelineChoice& choice) const;
  // The most memory of a rank of the pipeline under `schedule`, of choice.schedule's name.
  std::uint64_t rank_peak(const PipelineChoice& choice, const pipeline::Schedule& schedule, int rank) const;
  // No choice makes a step shorter: all ranks busy all the time, and the fastest update.
  double least_step_s(int micro_batches) const;

 private:
  MeshShape shape_;
  MeshLinks links_;
  std::vector<LayerCost> layers_;
  std::uint64_t base_bytes_;
  double overhead_s_;
  bool in_place_;
};

// Whether the schedule cuts backward passes in two.
bool splits_backward(const std::string& schedule);
// The same of training: with a checkpointed layer it does not (rondo/parallel/pipeline/pipeline_strategy.h).
bool splits_backward(const PipelineChoice& choice);

// The most that a rank of a pipeline holds at a time during the passes of its micro-batches, beside
// parameters and optimizer state: activations, what a pass needs while it runs, messages, and gradients of
// parameters from the first pass that makes them. It replays the rank's actions as training runs them
// (rondo/parallel/pipeline). `splits`: backward passes come in two parts.
std::uint64_t peak_of_passes(const std::vector<LayerCost>& layers, const PipelineChoice& choice,
                             const pipeline::Schedule& schedule, int rank, int passes, bool splits);

}  // namespace rondo::simulate
