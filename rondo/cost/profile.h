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

// A measured message size and its time.
struct CostPoint {
  std::uint64_t bytes = 0;
  double seconds = 0;
};

// The time of one collective on all ranks of a link as a function of its whole buffer's bytes. Linear between
// measured points; constant below the first point; above the last point the last slope continues. in_range()
// returns whether a size lies within the measured range.
class CostCurve {
 public:
  CostCurve() = default;
  // Takes at least two points, with strictly ascending sizes and positive, non-decreasing seconds. Otherwise
  // throws DataError that names `what` and the point.
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

// Fits a line that minimizes the squared RELATIVE errors. Ordinary least squares would leave small messages
// wrong by a large factor.
AlphaBeta fit_alpha_beta(const std::vector<CostPoint>& points);

// The connection between the ranks, as measured with `ranks` ranks.
struct Link {
  int ranks = 2;
  std::array<CostCurve, kCollectives.size()> curves;  // by Collective
  double alpha_s = 0;                                 // latency of one collective
  double beta_s_per_byte = 0;
  std::uint64_t saturating_bytes = 1;  // segment size that reaches 90 % of the bandwidth
  // True if the ranks of one host share one copy of the parameters in memory. Each rank writes its shard in
  // place, so parameters are never gathered.
  bool parameters_in_place = false;
  double contention = 0;  // share of compute speed lost while communication is in progress, in [0, 1)
  // Time of a message to one other rank, and time of an all-to-all by the total bytes that one rank sends. No
  // points if not measured.
  CostCurve send_recv, all_to_all;

  const CostCurve& curve(Collective collective) const { return curves[static_cast<std::size_t>(collective)]; }
  // Returns the seconds of a collective among `group` ranks; 0 for one rank. A group size other than the
  // measured one scales like a ring: the latency with group - 1 rounds, the rest with (group - 1) / group.
  double seconds(Collective collective, double bytes, int group) const;
  // Returns the seconds until another rank has received a message of `bytes`. If not measured: the time that
  // two ranks take to gather twice as much.
  double message_seconds(double bytes) const;
  // Returns the seconds of an all-to-all among `group` ranks in which each rank sends `bytes` in total. If
  // not measured: the time that they take to gather as much. Other group sizes scale as in seconds().
  double exchange_seconds(double bytes, int group) const;

 private:
  double scaled_to(double measured, int group) const;
};

// Returns a link with the costs of ring collectives among `ranks` ranks: `latency_s` per message,
// `bytes_per_s` in each direction. The curves are linear between 1 KiB and 16 GiB.
Link ring_link(int ranks, double latency_s, double bytes_per_s, double contention = 0);

// Sets alpha_s, beta_s_per_byte and saturating_bytes from the all-gather's curve. A transfer of 9 alpha /
// beta bytes takes nine times the latency, hence 90 % of the bandwidth.
void fit(Link& link);

// Costs of a layer's passes over `samples` samples: seconds without communication, and bytes.
struct LayerPasses {
  std::uint64_t samples = 1;
  double forward_s = 0;
  double backward_s = 0;               // single pass that computes all gradients
  double backward_input_s = 0;         // split backward: gradients of the layer's inputs
  double backward_weight_s = 0;        // split backward: gradients of the layer's parameters
  std::uint64_t activation_bytes = 0;  // kept from forward to backward
  std::uint64_t deferred_bytes = 0;    // kept from the first to the second part of a split backward
  // Peak bytes of each pass above the kept bytes. A backward pass starts with the gradient of the layer's
  // output alive. The buffers that accumulate parameter gradients are not counted.
  std::uint64_t forward_workspace_bytes = 0;
  std::uint64_t backward_workspace_bytes = 0;
  std::uint64_t input_workspace_bytes = 0;
  std::uint64_t weight_workspace_bytes = 0;
};

// One rank's part of a layer that `ranks` ranks divide along a mesh dimension; 1: the whole layer. Message
// bytes are for Profile::batch_size samples.
struct LayerPart {
  // Kind of division. "tensor": parts of its parameters; "context": parts of every sequence; "expert": some
  // of its experts.
  std::string dimension = "tensor";
  int ranks = 1;
  std::vector<LayerPasses> passes;  // ascending by samples; at least one
  std::uint64_t parameter_bytes = 0;
  // Part of parameter_bytes that the ranks along "expert" do not share.
  std::uint64_t expert_parameter_bytes = 0;
  // Number of messages that a rank sends in a pass, and their total bytes. Along "tensor" they are
  // all-reduces, along "context" they go to the next rank, along "expert" they are all-to-all exchanges.
  int forward_messages = 0;
  std::uint64_t forward_message_bytes = 0;
  int backward_messages = 0;
  std::uint64_t backward_message_bytes = 0;

  // Returns the costs for `samples` samples, which need not be a whole number. Interpolates linearly between
  // measured batches and extrapolates at both ends; no value is negative. With a single measured batch it
  // scales in proportion.
  LayerPasses at(double samples) const;
};

// A layer of a sequential model. Pipelines cut between layers, and tensor parallelism divides a layer.
struct LayerProfile {
  std::string name;                // "embeddings", "transformer.h.0"
  std::string unit;                // unit that owns the layer's parameters (UnitProfile::name)
  std::uint64_t output_bytes = 0;  // input of the next layer
  std::uint64_t checkpointed_activation_bytes = 0;  // activation bytes kept if recomputed
  std::vector<LayerPart> parts;  // ascending by ranks within each dimension; the first has 1 rank

  // Returns the part among `ranks` ranks along a dimension; null if not measured. For one rank returns the
  // first part.
  const LayerPart* part(const std::string& dimension, int ranks) const;
};

// Costs on one rank of a unit (a layer that is sharded and scheduled as a whole), for one micro-batch.
// Seconds exclude communication; bytes are unsharded.
struct UnitProfile {
  std::string name;
  double forward_s = 0;
  double backward_s = 0;
  double recompute_s = 0;  // second forward, inside backward, if the unit is checkpointed
  double optimizer_s = 0;  // update of all of the unit's parameters on one rank
  std::uint64_t parameter_bytes = 0;
  std::uint64_t gradient_bytes = 0;
  // Part of gradient_bytes that is not reduced: experts that no other rank has.
  std::uint64_t own_gradient_bytes = 0;
  std::uint64_t optimizer_bytes = 0;
  std::uint64_t activation_bytes = 0;               // kept from forward to backward
  std::uint64_t checkpointed_activation_bytes = 0;  // as activation_bytes, if the unit is checkpointed
  std::uint64_t forward_workspace_bytes = 0;        // alive in the unit's forward only
  // Peak bytes of the unit's backward above activation_bytes + gradient_bytes. Negative if activations are
  // freed before the last gradient is allocated; at least -(activation_bytes + gradient_bytes).
  std::int64_t backward_workspace_bytes = 0;
  // As backward_workspace_bytes, if the unit is checkpointed, with the second forward. If empty, see
  // backward_workspace().
  std::optional<std::int64_t> checkpointed_backward_workspace_bytes = {};
  // Strategies that a plan may choose for this unit; all if empty.
  std::vector<Strategy> strategies;
};

// Returns the peak bytes of a unit's backward above activation_bytes + gradient_bytes. For a checkpointed
// unit without a value of its own: the larger of backward's peak and the peak of the second forward, in which
// the unit has no gradients yet.
std::int64_t backward_workspace(const UnitProfile& unit, bool checkpointed);

// Largest Profile::spread of times that were measured on a steady machine.
inline constexpr double kSteadySpread = 0.05;

// A model's costs on a machine. `rondo profile` measures it and `rondo plan` reads it.
// docs/planner/profile-file.md describes the JSON.
struct Profile {
  std::string model;  // name of the profiled model; training compares it with its model
  // Text form of every setting that the measurements depend on: model, its settings, batch, optimizer, ranks.
  // Training compares it with its own; empty: unknown.
  std::string made_for;
  std::uint64_t batch_size = 1;  // samples per rank and micro-batch that times and activations are for
  // Relative spread of measured times: half of the passes lie within this share of their median.
  double spread = 0;
  // Time of a step outside its units and the update: copies of gradients into buckets, hooks at the start and
  // end of units, loading the batch, the reduction of the loss.
  double overhead_s = 0;
  std::uint64_t base_bytes = 0;  // always allocated and in no unit: input batch, constant tensors
  // Part of base_bytes that the engine allocates for the group of all ranks (link.ranks), and its part per
  // rank. The groups along a mesh's dimensions allocate such memory, too.
  std::uint64_t engine_bytes = 0;
  std::uint64_t engine_rank_bytes = 0;
  std::vector<UnitProfile> units;  // in forward order
  // Layers of a sequential model, in forward order. Empty if not measured (a model that is not sequential, a
  // profile of format 1).
  std::vector<LayerProfile> layers;
  Link link;
};

// Returns the profile for a batch `factor` times as large. Forward and backward times, activations and
// workspaces scale; parameters, the optimizer's time and the overhead do not.
Profile scaled_to_batch(const Profile& profile, double factor);

// Scales forward, backward and recomputation of all units so that a pass without recomputation takes
// `seconds`. Does nothing if no unit takes any time.
void fit_to_pass(Profile& profile, double seconds);

// Returns the note of a plan with `micro_batches` micro-batches: Profile::overhead_s is counted once a step,
// but each micro-batch has an unmeasured part of it. Empty with one micro-batch or without an overhead.
std::optional<std::string> overhead_note(const Profile& profile, int micro_batches);

}  // namespace rondo::cost
