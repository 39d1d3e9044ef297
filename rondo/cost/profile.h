#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/cost/strategy.h"

namespace rondo::cost {

// The collectives that sharded training uses.
enum class Collective { all_reduce, reduce_scatter, all_gather };
inline constexpr std::array kCollectives{Collective::all_reduce, Collective::reduce_scatter,
                                         Collective::all_gather};
std::string_view name(Collective collective);

// A measured size and the seconds it takes.
struct CostPoint {
  std::uint64_t bytes = 0;
  double seconds = 0;
};

// Seconds of one collective against the bytes of its whole buffer, on all ranks of a link: straight lines
// between measured points. Below the first point its latency stays, above the last the slope of the last
// piece goes on; in_range() tells which sizes were measured.
class CostCurve {
 public:
  CostCurve() = default;
  // At least two points, sizes strictly ascending and seconds positive and not descending; throws DataError
  // that names `what` and the point.
  CostCurve(std::vector<CostPoint> points, std::string_view what);

  double seconds(double bytes) const;
  bool in_range(std::uint64_t bytes) const;
  const std::vector<CostPoint>& points() const { return points_; }

 private:
  std::vector<CostPoint> points_;
};

// seconds = alpha + beta * bytes
struct AlphaBeta {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
};

// The line that fits the points best where every point counts by its RELATIVE error: ordinary least squares
// would leave small messages wrong by a large factor.
AlphaBeta fit_alpha_beta(const std::vector<CostPoint>& points);

// Connection between the ranks, as measured with `ranks` of them.
struct Link {
  int ranks = 2;
  std::array<CostCurve, kCollectives.size()> curves;  // by Collective
  double alpha_s = 0;                                 // of one collective
  double beta_s_per_byte = 0;
  std::uint64_t saturating_bytes = 1;  // a block this large reaches 90 % of the bandwidth
  // Ranks of one host write their shards where all of them read: parameters are there once and never
  // gathered.
  bool parameters_in_place = false;
  double contention = 0;  // share of its speed that compute loses while communication goes on, in [0, 1)
  // By bytes: of a message to one other rank, and of an exchange of all with all by what a rank gives
  // together. Without points where nobody measured.
  CostCurve send_recv, all_to_all;

  const CostCurve& curve(Collective collective) const { return curves[static_cast<std::size_t>(collective)]; }
  // Seconds of a collective among `group` ranks. Another group size than the measured one scales as the
  // ring does: latency with group - 1 rounds, the rest with (group - 1) / group. Nothing for one rank.
  double seconds(Collective collective, double bytes, int group) const;
  // Until a message of so many bytes is with another rank; where nobody measured, what two ranks take to
  // gather twice as much.
  double message_seconds(double bytes) const;
  // Until each of `group` ranks, which gives so many bytes together, has what all others give it; where
  // nobody measured, what they take to gather as much. Other group sizes scale as in seconds().
  double exchange_seconds(double bytes, int group) const;

 private:
  double scaled_to(double measured, int group) const;
};

// The link that alpha and beta describe, as ring collectives among `ranks` ranks: `latency_s` a message,
// `bytes_per_s` each way. Its curves are straight between 1 KiB and 16 GiB.
Link ring_link(int ranks, double latency_s, double bytes_per_s, double contention = 0);

// Fills alpha_s, beta_s_per_byte and saturating_bytes from the all-gather's curve: 9 alpha / beta bytes take
// ten times the latency in transfer, hence 90 % of the bandwidth.
void fit(Link& link);

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

// A model on a machine: what `rondo profile` measures and `rondo plan` reads. docs/planner/profile-file.md
// describes the JSON.
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
