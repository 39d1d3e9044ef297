#include "rondo/parallel/ddp/reduction_queue.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

void ReductionQueue::set_units(std::vector<Unit> units) {
  units_ = std::move(units);
  works_.assign(units_.size(), nullptr);
  trace_.clear();
  for (const Unit& unit : units_) trace_.push_back({.parameters = unit.gradients, .bytes = unit.bytes});
  begin();
}

void ReductionQueue::begin() {
  launched_ = 0;
  noted_ = 0;
  pending_.clear();
  for (std::size_t i = 0; i < units_.size(); ++i) {
    pending_.push_back(units_[i].gradients);
    trace_[i].ready_ns = trace_[i].launched_ns = trace_[i].finished_ns = 0;
  }
}

void ReductionQueue::gradient_ready(std::size_t unit) {
  if (--pending_[unit] == 0) {
    trace_[unit].ready_ns = monotonic_ns();
    while (launched_ < units_.size() && pending_[launched_] == 0) launch(launched_++);
  }
  note_finished();
}

void ReductionQueue::launch(std::size_t unit) {
  trace_[unit].launched_ns = monotonic_ns();
  try {
    works_[unit] = start_(unit);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(str(describe(unit), " could not be started: ", error.what()));
  }
}

void ReductionQueue::note_finished() {
  while (noted_ < launched_ && works_[noted_] && works_[noted_]->isCompleted()) {
    trace_[noted_++].finished_ns = monotonic_ns();
  }
}

void ReductionQueue::wait(std::size_t unit) {
  const c10::intrusive_ptr<c10d::Work> work = std::exchange(works_[unit], nullptr);
  bool done = false;
  try {
    done = work->wait();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(str(describe(unit), " failed: ", error.what()));
  }
  if (!done) throw Error(str(describe(unit), " was aborted"));
  if (trace_[unit].finished_ns == 0) trace_[unit].finished_ns = monotonic_ns();
}

void ReductionQueue::abandon() noexcept {
  for (c10::intrusive_ptr<c10d::Work>& work : works_) {
    if (!work) continue;
    try {
      work->wait();
    } catch (const std::exception&) {
      // The error that led here is the one to report.
    }
    work.reset();
  }
}

std::string ReductionQueue::describe(std::size_t unit) const {
  return str(place_, ": all-reduce ", unit + 1, " of ", units_.size(), " in this backward pass (",
             units_[unit].name, ", ", to_string(units_[unit].bytes), ")");
}

}  // namespace rondo
