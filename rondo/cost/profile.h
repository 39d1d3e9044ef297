#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rondo/cost/link.h"
#include "rondo/cost/strategy.h"

namespace rondo::cost {

// What a layer's passes over so many samples take: seconds without communication, and bytes.
struct LayerPasses {
  std::uint64_t samples = 1;
  double forward_s = 0;
  double backward_s = 0;               // all gradients in one pass
  double backward_input_s = 0;         // in two: of the layer's inputs ...
  double backward_weight_s = 0;        // ... and then of its parameters
  std::uint64_t activation_bytes = 0;  // kept from forward to backward
  std::uint64_t deferred_bytes = 0;    // kept from a divided backward's first part to its second
  // Besides, at the largest moment of each pass, above what is kept: of a backward pass when it begins, with
  // the gradient of the layer's output. The sums of its parameters' gradients are not counted.
  std::uint64_t forward_workspace_bytes = 0;
  std::uint64_t backward_workspace_bytes = 0;
  std::uint64_t input_workspace_bytes = 0;
  std::uint64_t weight_workspace_bytes = 0;
};

// What one rank has of a layer that `ranks` divide along a dimension of a mesh; 1: all of it. Bytes of
// messages are for Profile::batch_size samples.
struct LayerPart {
  // "tensor": parts of its parameters; "context": pieces of every sequence; "expert": some of its experts.
  std::string dimension = "tensor";
  int ranks = 1;
  std::vector<LayerPasses> passes;  // by samples, ascending; at least one
  std::uint64_t parameter_bytes = 0;
  std::uint64_t expert_parameter_bytes = 0;  // of these what the ranks along "expert" do not share
  // What a rank gives the others in a pass, so many messages of so many bytes together: along "tensor" they
  // add up, along "context" the next rank gets them, along "expert" each rank gets some.
  int forward_messages = 0;
  std::uint64_t forward_message_bytes = 0;
  int backward_messages = 0;
  std::uint64_t backward_message_bytes = 0;

  // For so many samples, a number that need not be whole: straight lines between what was measured, the last
  // one going on to both sides; nothing is below zero. Of one measured batch: in proportion.
  LayerPasses at(double samples) const;
};

// A layer of the model as a sequence: what pipelines cut between and tensor parallelism divides.
struct LayerProfile {
  std::string name;                                 // "embeddings", "transformer.h.0"
  std::string unit;                                 // whose parameters it has (UnitProfile::name)
  std::uint64_t output_bytes = 0;                   // that the next layer gets
  std::uint64_t checkpointed_activation_bytes = 0;  // kept where it is recomputed
  std::vector<LayerPart> parts;  // by ranks, ascending for each dimension; the first one of one rank

  // Among so many ranks along a dimension; null where that is not known. Of one rank the first part.
  const LayerPart* part(const std::string& dimension, int ranks) const;
};

// What one unit (a layer that is sharded and scheduled as a whole) costs on one rank, for the batch of one
// micro-batch. Seconds without communication, bytes unsharded.
struct UnitProfile {
  std::string name;
  double forward_s = 0;
  double backward_s = 0;
  double recompute_s = 0;  // forward once more, inside backward, when the unit is checkpointed
  double optimizer_s = 0;  // updating all of the unit's parameters on one rank
  std::uint64_t parameter_bytes = 0;
  std::uint64_t gradient_bytes = 0;
  std::uint64_t own_gradient_bytes = 0;  // of these what is not combined: of experts that no other rank has
  std::uint64_t optimizer_bytes = 0;
  std::uint64_t activation_bytes = 0;               // kept from forward to backward
  std::uint64_t checkpointed_activation_bytes = 0;  // the same when the unit is checkpointed
  std::uint64_t forward_workspace_bytes = 0;        // alive in the unit's forward only
  // The largest moment of the unit's backward, above activation_bytes and gradient_bytes together. Below zero
  // where activations are gone before the last gradient is there; at least -(activation + gradient bytes).
  std::int64_t backward_workspace_bytes = 0;
  // The same when the unit is checkpointed, with the second forward; not said: see backward_workspace().
  std::optional<std::int64_t> checkpointed_backward_workspace_bytes = {};
  // What a plan may choose for this unit; all when empty.
  std::vector<Strategy> strategies;
};

// What a unit's backward needs at its largest moment, above activation_bytes and gradient_bytes together. Of
// a checkpointed unit that does not say: the larger of backward, and of the second forward, in which the unit
// has no gradients yet.
std::int64_t backward_workspace(const UnitProfile& unit, bool checkpointed);

// Times whose Profile::spread is larger were measured on a machine that was not steady.
inline constexpr double kSteadySpread = 0.05;

// A model on a machine: what `rondo profile` measures and `rondo plan` reads. docs/planner.md describes the
// JSON.
struct Profile {
  std::string model;  // name of what was profiled; training compares it
  // Everything that what was measured depends on, in words: model, its settings, batch, optimizer, ranks.
  // Training compares it with its own; empty: not said.
  std::string made_for;
  std::uint64_t batch_size = 1;  // samples of one rank and micro-batch that times and activations are for
  double spread = 0;  // of measured times: half of the passes lie within this share of their median
  // What a step computes besides its units and the update: copies of gradients into the buffers that travel,
  // what is done when a unit begins and ends, the batch, the ranks' agreement on the loss.
  double overhead_s = 0;
  std::uint64_t base_bytes = 0;  // alive all the time and in no unit: input batch, constant tensors
  // Of base_bytes what the engine takes for the group of all ranks (link.ranks), and of that for each rank:
  // the groups along a mesh's dimensions take such memory, too.
  std::uint64_t engine_bytes = 0;
  std::uint64_t engine_rank_bytes = 0;
  std::vector<UnitProfile> units;  // in the order of forward
  // Of the model as a sequence, in the order of forward; empty where nobody measured (a model that is none, a
  // profile of format 1).
  std::vector<LayerProfile> layers;
  Link link;
};

// The profile of a batch `factor` times as large: times of forward and backward, activations and workspaces
// grow with it, parameters, the optimizer's time and the overhead do not.
Profile scaled_to_batch(const Profile& profile, double factor);

// Scales forward, backward and recomputation of all units so that a pass without recomputation takes
// `seconds`. Nothing where no unit takes any time.
void fit_to_pass(Profile& profile, double seconds);

// What a plan has to say of Profile::overhead_s, which is counted once a step, where a step computes so many
// micro-batches: each has a part of it, which was not measured. Nothing with one, or without an overhead.
std::optional<std::string> overhead_note(const Profile& profile, int micro_batches);

}  // namespace rondo::cost
