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

// Sizes of a mesh's dimensions, and the work of each replica in a step.
struct MeshShape {
  int pipeline = 1;
  int data = 1;
  int tensor = 1;
  double samples = 1;  // per replica and pass
  int passes = 1;      // accumulated passes of a step
  int context = 1;
  int expert = 1;

  int ranks() const { return pipeline * data * context * expert * tensor; }
  // Ranks with the same parameters, except experts. A strategy along data has these ranks.
  int copies() const { return data * context * expert; }
};

// The links along each dimension.
struct MeshLinks {
  cost::Link pipeline, data, tensor, context, expert;
};
// Returns the same link along all dimensions.
MeshLinks same_links(const cost::Link& link);

// Costs of a layer on one rank, for some number of samples. Seconds include the communication among the ranks
// that divide the layer.
struct LayerCost : cost::LayerPasses {
  std::string name;
  std::string unit;
  double optimizer_s = 0;  // update of the rank's part of its parameters
  std::uint64_t parameter_bytes = 0;
  std::uint64_t gradient_bytes = 0;
  std::uint64_t own_gradient_bytes = 0;  // see cost::UnitProfile
  std::uint64_t optimizer_bytes = 0;
  std::uint64_t checkpointed_activation_bytes = 0;
  std::uint64_t output_bytes = 0;
  // Returns the largest workspace of any pass.
  std::uint64_t workspace_bytes() const {
    return std::max(
        {forward_workspace_bytes, backward_workspace_bytes, input_workspace_bytes, weight_workspace_bytes});
  }
};

// Returns the engine's memory for a group of `ranks` ranks.
std::uint64_t engine_bytes_of_group(const cost::Profile& profile, int ranks);
// Returns the engine's memory for the groups along the mesh's dimensions. Data always has a group, other
// dimensions if they have several ranks; a group of all ranks shares the world's. Context and expert have
// additional groups for parameters and tokens (rondo/parallel/strategy_on_mesh.h, experts/expert_strategy.h).
std::uint64_t engine_bytes_of_groups(const cost::Profile& profile, const MeshShape& shape);

// Returns the profile's layers. A profile without layers gives its units in order: undivided, with half of a
// backward pass for the gradients of inputs. Their output has the size of the input that a checkpointed unit
// keeps.
std::vector<cost::LayerProfile> layers_of(const cost::Profile& profile);

// Returns the cost of every layer as the mesh divides it along tensor, context or expert. Throws UsageError
// for a mesh that divides layers along two of these, and, with its name, for a layer that was not profiled
// divided so.
std::vector<LayerCost> layer_costs(const cost::Profile& profile, const MeshShape& shape, double samples,
                                   const MeshLinks& links);

// Returns the profile of one rank's part of each unit, for `samples` samples. Times include the communication
// among the ranks that divide layers. Spread experts leave ddp as the only strategy. Throws as layer_costs()
// does, and for a unit without layers.
cost::Profile part_of_profile(const cost::Profile& profile, const MeshShape& shape, double samples,
                              const MeshLinks& links);

// Stages of a replica, and each pipeline rank's strategy along data. A rank's stages are one unit there:
// gradients are reduced after the last micro-batch.
struct PipelineChoice {
  std::string schedule = "1f1b";           // pipeline::schedule_names()
  int micro_batches = 1;                   // per pass
  int chunks = 2;                          // interleaved: stages per rank
  std::vector<int> first;                  // first layer of each stage
  std::vector<cost::Strategy> strategies;  // by rank of the pipeline
  std::vector<bool> checkpointed;          // by layer
};

// Parameters, gradients and optimizer state of some layers, with the time to reduce and update them.
struct StateCost {
  std::uint64_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
  std::uint64_t own_gradient_bytes = 0;  // part of gradients; see cost::UnitProfile
  double optimizer_s = 0;
  void add(const LayerCost& layer);

  // Each takes a strategy among `ranks` ranks. `in_place`: see cost::Link::parameters_in_place.
  // bytes_in_passes() excludes gradients, which the first backward pass allocates.
  std::uint64_t bytes_in_passes(cost::Strategy strategy, int ranks) const;
  std::uint64_t bytes_behind_passes(cost::Strategy strategy, int ranks, bool in_place) const;
  double update_s(cost::Strategy strategy, int ranks) const;
  double communication_s(cost::Strategy strategy, int ranks, const cost::Link& link) const;
};

// Times and memory of a pipeline rank in a step.
struct PipelineRank {
  double busy_s = 0;     // passes of micro-batches
  double idle_s = 0;     // waits for other stages
  double exposed_s = 0;  // communication of gradients and parameters along data
  double update_s = 0;
  std::uint64_t peak_bytes = 0;
};

struct PipelineForecast {
  double step_s = 0;
  std::uint64_t peak_bytes = 0;     // highest peak of any rank
  std::vector<PipelineRank> ranks;  // by rank of the pipeline
  pipeline::Schedule schedule;
  pipeline::Simulation timeline;  // one pass
  // Returns the longest idle time of a rank as a share of the step.
  double idle_share() const;
};

// Costs of a model on the ranks of a mesh with a pipeline, for micro-batches of one size.
class PipelineCosts {
 public:
  // Throws UsageError as layer_costs() does, and for fewer samples than micro-batches.
  PipelineCosts(const cost::Profile& profile, const MeshShape& shape, const MeshLinks& links,
                int micro_batches);

  const std::vector<LayerCost>& layers() const { return layers_; }
  const MeshShape& shape() const { return shape_; }
  std::uint64_t base_bytes() const { return base_bytes_; }
  bool in_place() const { return in_place_; }
  // Returns the times of layers [begin, end) as a stage; `splits`: backward passes are split. The first
  // stage's backward is then all in the second part, since no stage needs the gradients of its inputs.
  pipeline::StageTimes stage_times(int begin, int end, bool splits,
                                   const std::vector<bool>& checkpointed) const;
  // Returns the seconds of the communication of parameters and gradients along data.
  double communication_s(const StateCost& state, cost::Strategy strategy) const {
    return state.communication_s(strategy, shape_.copies(), links_.data);
  }
  // Simulates the schedule, and gradients, optimizer and parameters after it. Throws UsageError for an
  // invalid choice.
  PipelineForecast forecast(const PipelineChoice& choice) const;
  // Returns the peak memory of a rank under `schedule`, which choice.schedule names.
  std::uint64_t rank_peak(const PipelineChoice& choice, const pipeline::Schedule& schedule, int rank) const;
  // Returns a lower bound of every choice's step: all ranks are always busy, and the update is the fastest.
  double least_step_s(int micro_batches) const;

 private:
  MeshShape shape_;
  MeshLinks links_;
  std::vector<LayerCost> layers_;
  std::uint64_t base_bytes_;
  double overhead_s_;
  bool in_place_;
};

// Returns true if the schedule splits backward passes.
bool splits_backward(const std::string& schedule);
// Returns true if training splits backward passes: not with a checkpointed layer
// (rondo/parallel/pipeline/pipeline_strategy.h).
bool splits_backward(const PipelineChoice& choice);

// Returns the peak memory of a pipeline rank during the passes of its micro-batches, without parameters and
// optimizer state. Counts activations, workspaces, messages, and gradients of parameters from the first pass
// that computes them. Replays the rank's actions as training runs them (rondo/parallel/pipeline). `splits`:
// backward passes are split.
std::uint64_t peak_of_passes(const std::vector<LayerCost>& layers, const PipelineChoice& choice,
                             const pipeline::Schedule& schedule, int rank, int passes, bool splits);

}  // namespace rondo::simulate
