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

// How a unit's parameters, gradients and optimizer state are kept on the ranks: what the planner chooses
// among.
using Sharding = cost::Strategy;
using cost::shards_gradients;
using cost::shards_optimizer;
using cost::shards_parameters;

// The units of a model, by number, in the order of forward as far as that was seen. One thread.
class UnitOrder {
 public:
  // Of `units`, the first `roots` of which have no forward pass of their own.
  UnitOrder(std::size_t units, std::size_t roots);

  std::size_t size() const { return order_.size(); }
  std::size_t operator[](std::size_t position) const { return order_[position]; }
  auto begin() const { return order_.begin(); }
  auto end() const { return order_.end(); }
  std::size_t position(std::size_t unit) const { return position_[unit]; }
  bool is_last(std::size_t unit) const { return position_[unit] + 1 == order_.size(); }

  // The first forward pass of a unit has begun, and `seen` other units had theirs before. It moves to where
  // it is seen; what was never seen stays at the end.
  void see(std::size_t unit, std::size_t seen);
  // Backward has begun: the order stays as it is.
  void fix() { is_fixed_ = true; }

 private:
  std::vector<std::size_t> order_;
  std::vector<std::size_t> position_;  // by unit
  const std::size_t roots_;
  bool is_fixed_ = false;
};

// Makes the plan of a step once the model is known: of its units (names and sizes) on so many ranks.
using PlanMaker = std::function<cost::StepPlan(const std::vector<cost::PlannedUnit>& units, int ranks)>;

// The same strategy for every unit.
PlanMaker uniform_plan(Sharding everywhere);

// A strategy drawn for every unit; the same draw on every rank and machine for a seed. `is_told`: in the log.
PlanMaker drawn_plan(std::uint64_t seed, bool is_told = false);

// A plan for this model, from anywhere. Throws UsageError naming its source, what does not fit and what to
// do: a plan for another number of ranks, units that it leaves out, entries that name no unit, a unit that
// has another size in the model.
PlanMaker given_plan(cost::StepPlan plan);

// Units that are gathered, reduced and freed together, or a bucket of what no unit holds.
struct UnitGroup {
  ModelUnit unit = {};                   // of several: their names joined by '+', the first one's state
  std::vector<UnitState*> members = {};  // empty for the root
  Sharding sharding = Sharding::ddp;
};

// Joins units that follow each other and have the same strategy as long as their parameters together are no
// larger than `most`, so that they travel in one message where each alone would pay a message's latency for
// little (tensor fusion: Sergeev and Del Balso, "Horovod", 2018). The root is never joined. 0 joins nothing.
std::vector<UnitGroup> join_small_units(std::vector<ModelUnit> units, const std::vector<Sharding>& shardings,
                                        Bytes most);

// Cuts the root, where its strategy is ddp, into buckets of about `most`, in the order of the model: it has
// no backward pass of its own whose end could send its gradients off, so each bucket leaves as soon as the
// last of its own is there. The bucket whose gradients come first is smaller (at most 1 MiB). 0 cuts nothing.
std::vector<UnitGroup> split_root(std::vector<UnitGroup> groups, Bytes most);

}  // namespace rondo
