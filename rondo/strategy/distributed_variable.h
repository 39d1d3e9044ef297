#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "rondo/strategy/strategy.h"
#include "rondo/strategy/strategy_reference.h"

namespace rondo {

// When the replicas' copies of a variable are combined.
enum class VariableSynchronization {
  on_write,  // at each assignment: all copies are always the same
  on_read,   // each replica changes its own; reading outside of run() combines them
  none       // never
};

// How the replicas' copies of a variable are combined; none is not at all.
enum class VariableAggregation { none, sum, mean, only_first_replica };

// A variable with a copy for each replica. Inside Strategy::run() it is the calling replica's copy; outside
// of it, all of them. Collective where replicas of other processes take part.
class DistributedVariable {
 public:
  // How copies are kept.
  struct Options {
    VariableSynchronization synchronization = VariableSynchronization::on_write;  // when
    VariableAggregation aggregation = VariableAggregation::none;                  // how
  };

  // All copies begin as rank 0's `initial`. `strategy` must outlive the object; a call after its end throws
  // UsageError. Outside of run(). Collective.
  DistributedVariable(Strategy& strategy, const at::Tensor& initial, Options options);
  // The same with the default options.
  DistributedVariable(Strategy& strategy, const at::Tensor& initial)
      : DistributedVariable(strategy, initial, Options()) {}

  // Inside run(): the copy of the calling replica itself. Outside: on_write any of them, on_read what
  // aggregation makes of all, in memory of its own. Throws UsageError outside of run() where nothing combines
  // the copies (none, or no aggregation).
  at::Tensor value() const;
  // Inside run(): on_write every replica calls it, and all copies become the aggregation of their `value`s;
  // otherwise the replica's own changes. Outside: all copies together become `value`, so with on_read and sum
  // each of n becomes a n-th of it. Throws UsageError for on_write without aggregation inside run(), where
  // replicas might assign different values.
  void assign(const at::Tensor& value);
  // The same, added to or taken from what is there: with on_write the aggregation of what they bring.
  void assign_add(const at::Tensor& value);
  void assign_sub(const at::Tensor& value) { assign_add(-value); }  // likewise

  // The copies of this process, one a replica.
  ReplicaValue copies() const { return ReplicaValue(copies_); }

 private:
  at::Tensor own() const;
  // What all replicas bring; inside run().
  at::Tensor aggregated(const at::Tensor& value) const;

  StrategyReference strategy_;
  Options options_;
  std::vector<at::Tensor> copies_;
};

}  // namespace rondo
