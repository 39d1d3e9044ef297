#include "rondo/parallel/ddp/reduction_queue.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

void ReductionQueue::set_units(std::vector<Unit> units) {
  units_ = std::move(units);
  futures_.clear();
  futures_.resize(units_.size());
  trace_.clear();
  for (const Unit& unit : units_) trace_.push_back({.parameters = unit.gradients, .bytes = unit.bytes});
  begin();
}

void ReductionQueue::begin() {
  turn_.clear();
  launched_ = 0;
  noted_ = 0;
  pending_.clear();
  for (std::size_t i = 0; i < units_.size(); ++i) {
    pending_.push_back(units_[i].gradients);
    trace_[i] = {.parameters = units_[i].gradients, .bytes = units_[i].bytes};
  }
}

void ReductionQueue::gradient_ready(std::size_t unit) {
  if (--pending_[unit] == 0) trace_[unit].ready_ns = monotonic_ns();
  move_on(/*waits=*/false);
  note_finished();
}

void ReductionQueue::start_all() { move_on(/*waits=*/true); }

void ReductionQueue::move_on(bool waits) {
  for (;;) {
    if (!turn_.empty()) {
      if (!waits && !futures_[turn_.front()].arrived()) return;
      start_round(turn_.front());
      turn_.pop_front();
    } else if (launched_ < units_.size()) {
      if (pending_[launched_] > 0) return;
      begin_turn();
      launch(launched_++);
    } else {
      begin_turn();
      if (turn_.empty()) return;
    }
  }
}

void ReductionQueue::begin_turn() {
  for (std::size_t unit = 0; unit < launched_; ++unit) {
    if (futures_[unit].has_round()) turn_.push_back(unit);
  }
}

void ReductionQueue::launch(std::size_t unit) {
  trace_[unit].launched_ns = monotonic_ns();
  try {
    futures_[unit] = start_(unit);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw failure(unit, "could not be started", error);
  }
}

void ReductionQueue::start_round(std::size_t unit) {
  try {
    futures_[unit].start_round();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw failure(unit, "failed", error);
  }
}

void ReductionQueue::note_finished() {
  while (noted_ < launched_ && !futures_[noted_].has_round() && futures_[noted_].arrived()) {
    trace_[noted_++].finished_ns = monotonic_ns();
  }
}

at::Tensor ReductionQueue::wait(std::size_t unit) {
  start_all();
  BucketTrace& trace = trace_[unit];
  trace.waited_ns = monotonic_ns();
  at::Tensor result;
  try {
    result = std::exchange(futures_[unit], {}).wait();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw failure(unit, "failed", error);
  }
  const long long now = monotonic_ns();
  trace.exposed_ns = now - trace.waited_ns;
  if (trace.finished_ns == 0) trace.finished_ns = now;
  return result;
}

void ReductionQueue::abandon() noexcept {
  turn_.clear();
  for (BucketFuture& future : futures_) std::exchange(future, {}).abandon();
}

Error ReductionQueue::failure(std::size_t unit, const char* how, const std::exception& error) const {
  return Error(str(describe(unit), " ", how, ": ", error.what()));
}

std::string ReductionQueue::describe(std::size_t unit) const {
  return str(place_, ": all-reduce ", unit + 1, " of ", units_.size(), " in this backward pass (",
             units_[unit].name, ", ", to_string(units_[unit].bytes), ")");
}

}  // namespace rondo
