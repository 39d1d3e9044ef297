#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <string>
#include <vector>

#include "rondo/parallel/ddp/backward_trace.h"

namespace rondo {

// Starts the reductions of one backward pass strictly in order, each as soon as all its gradients are there
// and the ones before it are under way: the same order of operations on every rank, whatever order gradients
// arrive in.
class ReductionQueue {
 public:
  struct Unit {
    std::size_t gradients = 0;
    Bytes bytes;
    std::string name;  // for messages: "gradients 'a' to 'b'"
  };
  using Start = std::function<c10::intrusive_ptr<c10d::Work>(std::size_t unit)>;

  // `start` begins the reduction of a unit. `place` says in messages where this is: rank and group.
  ReductionQueue(Start start, std::string place) : start_(std::move(start)), place_(std::move(place)) {}

  void set_units(std::vector<Unit> units);
  // Begins a pass: no gradient is there.
  void begin();
  // One more gradient of the unit is there. Starts what can be started, and lets what is under way move on.
  void gradient_ready(std::size_t unit);
  // Returns when the unit is reduced. Errors of rondo's engines pass through, others become Error naming the
  // unit.
  void wait(std::size_t unit);
  // Waits for what is under way, whatever its outcome.
  void abandon() noexcept;

  const std::vector<BucketTrace>& trace() const { return trace_; }

 private:
  void launch(std::size_t unit);
  void note_finished();
  std::string describe(std::size_t unit) const;

  Start start_;
  std::string place_;
  std::vector<Unit> units_;
  std::vector<std::size_t> pending_;                   // by unit: gradients that are not there
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;  // by unit: under way
  std::vector<BucketTrace> trace_;
  std::size_t launched_ = 0;  // units that were started in this pass
  std::size_t noted_ = 0;     // of those, seen to be finished
};

}  // namespace rondo
