#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "rondo/cost/profile.h"

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

}  // namespace rondo::simulate
