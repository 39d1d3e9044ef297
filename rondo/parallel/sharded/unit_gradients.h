#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/memory/scope.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/parallel/gradients/transfer.h"
#include "rondo/parallel/schedule/communication_queue.h"
#include "rondo/parallel/schedule/policy.h"
#include "rondo/parallel/sharded/flat_parameters.h"
#include "rondo/parallel/sharded/gradient_buffers.h"
#include "rondo/parallel/sharded/reduce_scatter.h"
#include "rondo/parallel/sharded/unit_memory.h"
#include "rondo/parallel/sharded/unit_plans.h"

namespace rondo {

// The gradients of one unit (of one dtype), from `.grad` of its parameters on every rank to their weighted
// sum for the optimizer: whole for ddp, otherwise this rank's shard. On one host, through the native engine,
// they are reduced in place in shared memory, because communication costs processor time there; otherwise
// through a flat buffer. Not thread-safe.
class UnitGradients {
 public:
  struct Place {
    std::string unit;  // name for the memory tracker and spans
    Sharding sharding = Sharding::ddp;
    Group shard_group;      // ranks among which the unit is sharded
    Group replica_group;    // ranks that hold the same shard; not a member if there are none
    std::string codec;      // codec of float32 gradients; empty: none
    bool in_place = false;  // whether gradients are reduced in place; without a codec
  };
  // All arguments but `place` must outlive the object.
  UnitGradients(Place place, const FlatParameters& parameters, const GradientBuffers& gradient_buffers,
                CommunicationQueue& queue, BufferPool& buffers);

  // Takes all gradients of a backward pass out of `.grad` (a missing one counts as zero) and starts their
  // reduction. Does not block. `order` sets the order relative to other units' communication.
  void launch(const GradientWeight& weight, const SegmentOrder& order);
  // Returns true if a reduction was launched and not finished.
  bool launched() const { return transfers_.front()->launched(); }
  // Returns true if finish() would not block.
  bool arrived();
  // Blocks until the sum is in result(). Adds to the previous result if `accumulate`.
  void finish(bool accumulate);

  // Returns one tensor per parameter of the unit, in order: the part of its gradient that this rank
  // optimizes, flat (possibly empty), or for ddp all of it in the parameter's shape. Empty before the first
  // finish() and after drop().
  const std::vector<at::Tensor>& result() const { return result_; }
  // Drops the references to the result, which the optimizer's tensors now hold.
  void drop() { result_.clear(); }
  // Allows reuse of the result's memory after the optimizer's step. No other references may exist.
  void recycle();
  // Returns the state kept between passes (a codec's error feedback), by name. The tensors are not copied,
  // and their sizes never change.
  CommState memory() const;

 private:
  // Returns the part of the reduced gradient `sum` that this rank optimizes.
  at::Tensor own_part(const at::Tensor& sum, std::size_t parameter) const;

  const Place place_;
  const MemoryUnit unit_;
  const FlatParameters& parameters_;
  const GradientBuffers& gradient_buffers_;
  CommunicationQueue& queue_;
  BufferPool& buffers_;
  GradientWeight weight_;  // of the current pass
  const Transfer::WeightSource weight_source_ = [this]() -> const GradientWeight& { return weight_; };
  std::vector<std::unique_ptr<Transfer>> transfers_;
  ReduceScatter* scatter_ = nullptr;  // the only transfer; null if gradients are reduced in place
  std::vector<at::Tensor> result_;
};

}  // namespace rondo
