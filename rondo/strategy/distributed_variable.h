#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "rondo/strategy/strategy.h"
#include "rondo/strategy/strategy_reference.h"

namespace rondo {

// Time at which the replicas' copies of a variable are combined.
enum class VariableSynchronization {
  on_write,  // at each assignment: all copies are always equal
  on_read,   // each replica changes its copy; reading outside run() combines them
  none       // never
};

// Combination of the replicas' copies of a variable; none: copies are not combined.
enum class VariableAggregation { none, sum, mean, only_first_replica };

// A variable with a copy for each replica. Inside Strategy::run() it is the calling replica's copy, outside
// it all copies. Collective if replicas of other processes take part.
class DistributedVariable {
 public:
  // Synchronization and aggregation of the copies.
  struct Options {
    VariableSynchronization synchronization = VariableSynchronization::on_write;  // time of combining
    VariableAggregation aggregation = VariableAggregation::none;                  // kind of combining
  };

  // Initialises all copies with rank 0's `initial`. `strategy` must outlive the object; a later call throws
  // UsageError. Call it outside run(). Collective.
  DistributedVariable(Strategy& strategy, const at::Tensor& initial, Options options);
  // Uses the default options.
  DistributedVariable(Strategy& strategy, const at::Tensor& initial)
      : DistributedVariable(strategy, initial, Options()) {}

  // Inside run(): returns the calling replica's copy itself. Outside: returns any copy for on_write, or the
  // aggregation of all copies, in new memory, for on_read. Throws UsageError outside run() if copies are not
  // combined (synchronization none, or no aggregation).
  at::Tensor value() const;
  // Inside run() with on_write: every replica calls it, and all copies become the aggregation of their
  // `value`s. Inside run() otherwise: changes the replica's own copy. Outside: sets all copies together to
  // `value`; with on_read and sum each of n copies becomes value / n. Throws UsageError for on_write without
  // aggregation inside run(), because replicas might assign different values.
  void assign(const at::Tensor& value);
  // Adds `value`; with on_write inside run() adds the aggregation of the replicas' values.
  void assign_add(const at::Tensor& value);
  void assign_sub(const at::Tensor& value) { assign_add(-value); }  // likewise, subtracts

  // Returns the copies of this process, one for each replica.
  ReplicaValue copies() const { return ReplicaValue(copies_); }

 private:
  at::Tensor own() const;
  // Returns the aggregation of all replicas' values; inside run().
  at::Tensor aggregated(const at::Tensor& value) const;

  StrategyReference strategy_;
  Options options_;
  std::vector<at::Tensor> copies_;
};

}  // namespace rondo
