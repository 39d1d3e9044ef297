#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/reducer.h"
#include "rondo/parallel/sharded/segment_schedule.h"
#include "rondo/parallel/sharded/sharded_unit.h"
#include "rondo/parallel/sharded/unit_plans.h"

namespace rondo {

// Adds the time between construction and destruction to a sum of time in which computation is blocked.
class ExposedTime {
 public:
  explicit ExposedTime(std::int64_t& sum) : sum_(sum), begin_(monotonic_ns()) {}
  ~ExposedTime() { sum_ += monotonic_ns() - begin_; }
  ExposedTime(const ExposedTime&) = delete;
  ExposedTime& operator=(const ExposedTime&) = delete;

 private:
  std::int64_t& sum_;
  std::int64_t begin_;
};

// A reducer that launches gradients unit by unit when they are complete. Units are launched in the reverse
// order of forward, independent of the order of the backward pass, so the order is the same on all ranks.
// backward() throws UsageError for a gradient that arrives after its unit was launched: a module outside the
// unit used the parameter, and the gradient would be lost. It also throws for a gradient outside of a step,
// which would be added to the next step's. Not thread-safe.
class UnitReducer final : private Reducer {
 public:
  struct Options {
    bool find_unused = false;  // allows parameters without a gradient
    bool every_pass = false;  // whether sharded gradients are reduced in every pass of an accumulation window
    int in_flight = 0;        // maximum number of units with whole gradients in flight; 0 is no limit
    // whether the engine works in the background, so that gradients arrive without a call
    bool in_background = false;
  };
  // All arguments but `groups`, `world` and `options` must outlive the object. `groups` lists the parameters
  // of each of `units`. The time spent waiting is added to `exposed_ns`.
  UnitReducer(const ShardedUnits& units, const std::vector<UnitGroup>& groups, const UnitOrder& order,
              const SegmentSchedule& schedule, StepAnnouncement& announcement, std::int64_t& exposed_ns,
              Group world, const Options& options);

  // Begins a pass. `synchronises`: its end reduces gradients. `discards`: the pass leaves no gradients.
  void begin_pass(bool synchronises, bool discards);
  // Ends the last pass of an accumulation window: the gradients left by it and earlier passes will be
  // reduced.
  void take_left_gradients();
  // Ends the step after its last pass; later gradients are an error.
  void end_step() { in_step_ = false; }
  bool in_step() const { return in_step_; }
  // Returns true if a backward pass has produced gradients since begin_pass().
  bool has_gradients() const { return has_gradients_; }
  // Counts a forward call of the unit that was recorded for backward.
  void note_call(std::size_t unit) { ++progress_[unit].open_calls; }
  bool was_called(std::size_t unit) const { return progress_[unit].open_calls > 0; }
  // Returns the number of units with recorded forward calls.
  std::size_t called() const;
  // Ends the backward pass of a call. Returns true if it was the last one of its unit.
  bool end_call(std::size_t unit) { return --progress_[unit].open_calls <= 0; }
  // Marks the gradients of the unit as complete for this pass, and launches all units whose turn it is.
  void complete(std::size_t unit);
  // Marks the gradients of all units as complete.
  void complete_all() { Reducer::complete(0, buckets()); }
  bool was_sent(std::size_t unit) const { return progress_[unit].sent; }
  // Waits for the unit's gradients, if they were launched.
  void finish(std::size_t unit) { units_[unit]->finish_gradients(/*accumulate=*/options_.every_pass); }
  // Ends a pass within an accumulation window: launched gradients are added to the shards, others are kept.
  void finish_pass();
  // Returns true if passes that do not synchronise reduce gradients too.
  bool sends_every_pass() const { return options_.every_pass; }

  // Determines the parameters without a gradient on all ranks, if that is allowed; unused() then returns
  // their names. They keep no gradient, so that the optimizer skips them as it would in one process.
  // Collective.
  void agree_on_unused(const std::vector<ModelTensor>& parameters);
  const std::vector<std::string>& unused() const { return unused_; }

 private:
  // State of a unit in the current pass.
  struct Progress {
    int open_calls = 0;  // recorded forward calls whose backward pass is not over
    bool sent = false;
  };

  void arrived(std::size_t parameter) override;
  void watch_zero_grad();
  void send(std::size_t unit) override;
  std::size_t in_turn(std::size_t place) const override { return order_[order_.size() - 1 - place]; }
  void take_arrived();
  void make_room(std::size_t unit);
  void note_missing(std::size_t unit);

  const ShardedUnits& units_;
  const UnitOrder& order_;
  const SegmentSchedule& schedule_;
  std::int64_t& exposed_ns_;
  const Group world_;
  const Options options_;
  const std::vector<ModelTensor> trained_;
  std::vector<std::size_t> unit_of_;    // unit of each parameter in trained_
  std::vector<std::size_t> gradients_;  // by unit, number of gradients that complete it; 0 if complete() does
  std::vector<Progress> progress_;      // by unit
  std::vector<std::size_t> sent_;       // units of this pass that make_room() counts, oldest first
  bool in_step_ = false;
  bool has_gradients_ = false;
  bool synchronises_ = true;
  bool discards_ = false;
  bool has_left_ = false;             // whether earlier passes have left gradients that are not reduced
  bool watches_arrival_ = false;      // whether the next gradient that arrives is the first of its pass
  std::vector<std::string> missing_;  // parameters without a gradient on this rank in this pass
  std::vector<std::string> unused_;   // parameters without a gradient on all ranks
};

}  // namespace rondo
