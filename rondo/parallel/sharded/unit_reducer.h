#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/reducer.h"
#include "rondo/parallel/sharded/block_schedule.h"
#include "rondo/parallel/sharded/sharded_unit.h"
#include "rondo/parallel/sharded/unit_plans.h"

namespace rondo {

// Adds the time until its end to a sum: computation stands still.
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

// Sends gradients off, unit by unit, when they are complete: in the reverse order of forward, whatever order
// the backward pass takes, so in the same order on all ranks. A gradient that comes when those of its unit
// have been sent off would be lost, since a module outside the unit has used the parameter, and one that
// comes outside of a step would be taken for the next step's: UsageError then, out of backward(). One thread.
class UnitReducer final : private Reducer {
 public:
  struct Options {
    bool find_unused = false;    // a parameter without a gradient is no error
    bool every_pass = false;     // sharded gradients leave in every pass of an accumulation window
    int in_flight = 0;           // units of whole gradients under way at a time; 0 is no limit
    bool in_background = false;  // the engine works there, so that gradients may arrive by themselves
  };
  // All but `groups`, `world` and `options` outlive the object. `groups` says whose parameters each of
  // `units` has. `exposed_ns` takes the time in which it waits.
  UnitReducer(const ShardedUnits& units, const std::vector<UnitGroup>& groups, const UnitOrder& order,
              const BlockSchedule& schedule, StepAnnouncement& announcement, std::int64_t& exposed_ns,
              Group world, const Options& options);

  // A pass begins, at whose end gradients are combined or not; or one that leaves none (`discards`).
  void begin_pass(bool synchronises, bool discards);
  // The last pass of a window is over, and what it and those before have left is to be combined.
  void take_left_gradients();
  // The last pass of the step is over: gradients that come now are none of its business.
  void end_step() { in_step_ = false; }
  bool in_step() const { return in_step_; }
  // Whether a backward pass has given gradients since begin_pass().
  bool has_gradients() const { return has_gradients_; }
  // A forward call of the unit was recorded for backward.
  void note_call(std::size_t unit) { ++progress_[unit].open_calls; }
  bool was_called(std::size_t unit) const { return progress_[unit].open_calls > 0; }
  std::size_t called() const;  // how many units were
  // The backward pass of a call is over; true when it was the last of its unit.
  bool end_call(std::size_t unit) { return --progress_[unit].open_calls <= 0; }
  // No more gradients of the unit come in this pass: sends off what its turn has come for.
  void complete(std::size_t unit);
  // The same of all units.
  void complete_all() { Reducer::complete(0, buckets()); }
  bool was_sent(std::size_t unit) const { return progress_[unit].sent; }
  // Waits for the unit's gradients, if they were sent off.
  void finish(std::size_t unit) { units_[unit]->finish_gradients(/*accumulate=*/options_.every_pass); }
  // Between the passes of an accumulation window: what was sent off is added to the shards, the rest is kept.
  void finish_pass();
  // Whether gradients of a pass that does not synchronise leave too.
  bool sends_every_pass() const { return options_.every_pass; }

  // Which of `parameters` no rank has a gradient of, where that is no error. They keep none, so that the
  // optimizer passes them by, as one process would. Collective; the names are in unused() from then on.
  void agree_on_unused(const std::vector<ModelTensor>& parameters);
  const std::vector<std::string>& unused() const { return unused_; }

 private:
  // What a pass has left of a unit.
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
  const BlockSchedule& schedule_;
  std::int64_t& exposed_ns_;
  const Group world_;
  const Options options_;
  const std::vector<ModelTensor> trained_;
  std::vector<std::size_t> unit_of_;    // by number in trained_
  std::vector<std::size_t> gradients_;  // by unit, how many complete it: where that is what does
  std::vector<Progress> progress_;      // by unit
  std::vector<std::size_t> sent_;       // units of this pass that make_room() counts, the oldest first
  bool in_step_ = false;
  bool has_gradients_ = false;
  bool synchronises_ = true;
  bool discards_ = false;
  bool has_left_ = false;             // passes before have left gradients that are not combined
  bool watches_arrival_ = false;      // the next gradient that arrives is the first of its pass
  std::vector<std::string> missing_;  // parameters that this rank has no gradient of in this pass
  std::vector<std::string> unused_;   // parameters that no rank has one of
};

}  // namespace rondo
