#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/cost/step_plan.h"
#include "rondo/cost/strategy.h"
#include "rondo/nn/unit_state.h"

namespace rondo {

// Placement of a unit's parameters, gradients and optimizer state on the ranks; the planner's choices.
using Sharding = cost::Strategy;
using cost::shards_gradients;
using cost::shards_optimizer;
using cost::shards_parameters;

// The units of a model, by number, in the order of forward as far as it was observed. Not thread-safe.
class UnitOrder {
 public:
  // `units`: number of units; the first `roots` of them have no forward pass of their own.
  UnitOrder(std::size_t units, std::size_t roots);

  std::size_t size() const { return order_.size(); }
  std::size_t operator[](std::size_t position) const { return order_[position]; }
  auto begin() const { return order_.begin(); }
  auto end() const { return order_.end(); }
  std::size_t position(std::size_t unit) const { return position_[unit]; }
  bool is_last(std::size_t unit) const { return position_[unit] + 1 == order_.size(); }

  // Reports that the first forward pass of a unit has begun after those of `seen` other units. Moves the unit
  // to that position; units that were never reported stay at the end.
  void see(std::size_t unit, std::size_t seen);
  // Fixes the order when backward begins.
  void fix() { is_fixed_ = true; }

 private:
  std::vector<std::size_t> order_;
  std::vector<std::size_t> position_;  // by unit
  const std::size_t roots_;
  bool is_fixed_ = false;
};

// Returns the plan of a step for the model's units (names and sizes) on `ranks` ranks.
using PlanMaker = std::function<cost::StepPlan(const std::vector<cost::PlannedUnit>& units, int ranks)>;

// Returns a plan with the same strategy for every unit.
PlanMaker uniform_plan(Sharding everywhere);

// Returns a plan with a random strategy for every unit, the same on every rank and machine for a seed.
// `is_told`: logs the draw.
PlanMaker drawn_plan(std::uint64_t seed, bool is_told = false);

// Returns the given plan, after checking that it fits the model. Throws UsageError naming the plan's source,
// the mismatch and a remedy: another number of ranks, missing units, unknown units, or units of another size.
PlanMaker given_plan(cost::StepPlan plan);

// Units that are gathered, reduced and freed together, or a bucket of parameters outside all units.
struct UnitGroup {
  ModelUnit unit = {};                   // for several units: names joined by '+', and the first one's state
  std::vector<UnitState*> members = {};  // empty for the root
  Sharding sharding = Sharding::ddp;
};

// Joins consecutive units with the same strategy while their total parameter size is at most `most`, so that
// small units share one message and its latency (tensor fusion: Sergeev and Del Balso, "Horovod", 2018). The
// root is never joined. 0 joins nothing.
std::vector<UnitGroup> join_small_units(std::vector<ModelUnit> units, const std::vector<Sharding>& shardings,
                                        Bytes most);

// Cuts the root, if its strategy is ddp, into buckets of about `most` bytes, in the order of the model. The
// root has no backward pass of its own that could trigger the reduction, so each bucket is launched when its
// last gradient is ready. The bucket whose gradients come first is smaller (at most 1 MiB). 0 cuts nothing.
std::vector<UnitGroup> split_root(std::vector<UnitGroup> groups, Bytes most);

}  // namespace rondo
