#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/parallel/ddp/backward_trace.h"
#include "rondo/parallel/ddp/bucket_future.h"

namespace rondo {

// Starts the reductions of one backward pass strictly in order, each as soon as all its gradients are there
// and the ones before it are under way: the same order of operations on every rank, whatever order gradients
// arrive in.
//
// Reductions of several rounds take turns, also in one order everywhere: once unit n is started, each earlier
// unit that has a round left starts one, and only then unit n + 1 may start. So later rounds overlap with the
// backward pass too, without a message that one rank sends before and another after.
class ReductionQueue {
 public:
  struct Unit {
    std::size_t gradients = 0;
    Bytes bytes;
    std::string name;  // for messages: "gradients 'a' to 'b'"
  };
  using Start = std::function<BucketFuture(std::size_t unit)>;

  // `start` begins the reduction of a unit. `place` says in messages where this is: rank and group.
  ReductionQueue(Start start, std::string place) : start_(std::move(start)), place_(std::move(place)) {}

  void set_units(std::vector<Unit> units);
  // Begins a pass: no gradient is there.
  void begin();
  // One more gradient of the unit is there. Starts what can be started, and lets what is under way move on.
  void gradient_ready(std::size_t unit);
  // When all gradients are there: starts every round that is left, waiting for the messages before it. What
  // other operations the ranks do on the group is then between the same messages everywhere.
  void start_all();
  // Returns when the unit is reduced; the result of its future. Errors of rondo's engines pass through,
  // others become Error naming the unit.
  at::Tensor wait(std::size_t unit);
  // Waits for what is under way, whatever its outcome.
  void abandon() noexcept;

  const std::vector<BucketTrace>& trace() const { return trace_; }

 private:
  void move_on(bool waits);
  void begin_turn();
  void launch(std::size_t unit);
  void start_round(std::size_t unit);
  Error failure(std::size_t unit, const char* how, const std::exception& error) const;
  void note_finished();
  std::string describe(std::size_t unit) const;

  Start start_;
  std::string place_;
  std::vector<Unit> units_;
  std::vector<std::size_t> pending_;   // by unit: gradients that are not there
  std::vector<BucketFuture> futures_;  // by unit: under way
  std::deque<std::size_t> turn_;       // units that start a round before the next unit may
  std::vector<BucketTrace> trace_;
  std::size_t launched_ = 0;  // units that were started in this pass
  std::size_t noted_ = 0;     // of those, seen to be finished
};

}  // namespace rondo
