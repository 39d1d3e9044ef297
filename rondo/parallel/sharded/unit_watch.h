#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "rondo/nn/unit_state.h"

namespace rondo {

// Passes on what happens to a model's units, by number.
class UnitWatch final : public UnitObserver {
 public:
  struct Events {
    std::function<void(std::size_t unit)> before_forward;
    std::function<void(std::size_t unit)> after_forward;
    std::function<void(std::size_t unit)> before_backward;
    std::function<void(std::size_t unit)> after_backward;
  };
  explicit UnitWatch(Events events) : events_(std::move(events)) {}
  void add(const UnitState& state, std::size_t unit) { units_.emplace(&state, unit); }

  void pre_forward(UnitState& state) override { events_.before_forward(units_.at(&state)); }
  void post_forward(UnitState& state) override { events_.after_forward(units_.at(&state)); }
  void pre_backward(UnitState& state) override { events_.before_backward(units_.at(&state)); }
  void post_backward(UnitState& state) override { events_.after_backward(units_.at(&state)); }

 private:
  const Events events_;
  std::map<const UnitState*, std::size_t> units_;
};

// Units that are watched and cast their inputs and outputs, as long as the object lives.
class WatchedUnits {
 public:
  explicit WatchedUnits(UnitWatch::Events events) : watch_(std::make_shared<UnitWatch>(std::move(events))) {}
  ~WatchedUnits() {
    for (UnitState* state : states_) {
      state->detach(watch_);
      state->set_casts({});
    }
  }
  WatchedUnits(const WatchedUnits&) = delete;
  WatchedUnits& operator=(const WatchedUnits&) = delete;

  void add(UnitState& state, std::size_t unit, const UnitCasts& casts) {
    state.set_casts(casts);
    watch_->add(state, unit);
    state.attach(watch_);
    states_.push_back(&state);
  }

 private:
  std::shared_ptr<UnitWatch> watch_;
  std::vector<UnitState*> states_;
};

}  // namespace rondo
