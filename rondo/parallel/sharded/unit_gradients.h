#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/backend/coded_collectives.h"
#include "rondo/backend/group.h"
#include "rondo/base/bytes.h"
#include "rondo/memory/scope.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/parallel/gradients/transfer.h"
#include "rondo/parallel/schedule/bucket_future.h"
#include "rondo/parallel/schedule/communication_queue.h"
#include "rondo/parallel/schedule/policy.h"
#include "rondo/parallel/sharded/flat_parameters.h"
#include "rondo/parallel/sharded/gradient_buffers.h"
#include "rondo/parallel/sharded/unit_plans.h"

namespace rondo {

// A reduction of the gradients of one unit (of one dtype), from `.grad` of its parameters on every rank to
// their weighted sum for the optimizer: whole for ddp, otherwise this rank's shard. Not thread-safe.
class UnitGradients {
 public:
  virtual ~UnitGradients() = default;

  // Takes all gradients of a backward pass out of `.grad` (a missing one counts as zero) and starts their
  // reduction. Does not block. `order` sets the order relative to other units' communication.
  virtual void launch(const GradientWeight& weight, const BlockOrder& order) = 0;
  // Returns true if a reduction was launched and not finished.
  virtual bool launched() const = 0;
  // Returns true if finish() would not block.
  virtual bool arrived() = 0;
  // Blocks until the sum is in result(). Adds to the previous result if `accumulate`.
  virtual void finish(bool accumulate) = 0;

  // Returns one tensor per parameter of the unit, in order: the part of its gradient that this rank
  // optimizes, flat (possibly empty), or for ddp all of it in the parameter's shape. Undefined before the
  // first finish() and after drop().
  virtual const std::vector<at::Tensor>& result() const = 0;
  // Drops the references to the result, which the optimizer's tensors now hold.
  virtual void drop() = 0;
  // Allows reuse of the result's memory after the optimizer's step. No other references may exist.
  virtual void recycle() {}
  // Returns the state kept between passes (a codec's error feedback), by name. The tensors are not copied,
  // and their sizes never change.
  virtual CommState memory() const { return {}; }
};

// A reduction on one host, through the native engine, in place in shared memory, without another buffer. On
// one host communication costs processor time, so avoiding a copy saves time.
class InPlaceGradients final : public UnitGradients {
 public:
  // `unit`: name for the memory tracker and spans. `parameters`, `gradient_buffers` and `queue` must outlive
  // the object.
  InPlaceGradients(const std::string& unit, Sharding sharding, const FlatParameters& parameters,
                   const GradientBuffers& gradient_buffers, const Group& group, CommunicationQueue& queue);

  void launch(const GradientWeight& weight, const BlockOrder& order) override;
  bool launched() const override { return !tickets_.empty(); }
  // Always false: the engine works inside calls, here inside finish().
  bool arrived() override { return false; }
  void finish(bool accumulate) override;
  const std::vector<at::Tensor>& result() const override { return result_; }
  void drop() override { result_.clear(); }

 private:
  const std::string name_;
  const MemoryUnit unit_;
  const Sharding sharding_;
  const FlatParameters& parameters_;
  const GradientBuffers& gradient_buffers_;
  const int rank_;
  CommunicationQueue& queue_;
  GradientWeight weight_;  // of the current pass
  const Transfer::WeightSource weight_source_ = [this]() -> const GradientWeight& { return weight_; };
  std::vector<std::unique_ptr<InPlaceAllReduce>> transfers_;
  std::vector<CommunicationQueue::Ticket> tickets_;  // by transfer, while in flight
  std::vector<at::Tensor> result_;
};

// Returns the approximate memory in bytes that `codec` needs on each rank ("none": 0): error feedback and
// encodings. `gradients`: bytes of the model's float32 gradients, which `ranks` share. Throws like
// collective::make_codec().
Bytes codec_memory(const std::string& codec, Bytes gradients, int ranks);

// One of the consecutive operations that reduce a block of gradients.
struct BlockStep {
  const char* collective;
  Bytes bytes;  // bytes that this rank's part of the model sends or receives
  // starts the operation without waiting; the previous one must be finished
  std::function<BucketFuture()> start;
};

// A reduction of a unit's float32 gradients, encoded by a codec, block by block. Each rank sends every other
// rank the encoding of that rank's shard, and sums the shards received (coded_collectives.h). Replicas of a
// shard are combined by an all-reduce. If every rank needs the whole sum, each rank then sends the encoding
// of its shard. Encoding errors are added to the gradients of the next pass. Calls have the order of
// FlatGradients.
class CodedBlocks {
 public:
  // `replicas`: ranks that hold the same shard; not a member if there are none. `gathers`: whether every rank
  // needs the whole sum.
  CodedBlocks(const std::string& codec, const FlatLayout& layout, const Group& shards, const Group& replicas,
              bool gathers);

  // Encodes block `index`, with parts[r] for rank r, and returns the operations to run, in order. The last
  // one leaves the sum of this rank's part in `sum`, or the whole sum in `parts` if all ranks need it.
  std::vector<BlockStep> encode(std::size_t index, const std::vector<at::Tensor>& parts,
                                const at::Tensor& sum, Bytes bytes);

  // Returns the error feedback by name; the tensors are not copied.
  CommState memory() const;

 private:
  struct Block {
    std::unique_ptr<CodedReduceScatter> scatter;  // null with one rank
    std::unique_ptr<CodedAllReduce> copies;       // null without replicas
    std::unique_ptr<CodedAllGather> gather;       // null if no rank needs the whole sum
    std::vector<std::span<float>> residuals;      // one per rank, for its part
    std::span<float> sum_residual;                // for this rank's sum
  };

  const bool gathers_;
  std::vector<Block> blocks_;
  ErrorFeedback
      feedback_;  // of the whole buffer, and of this rank's shard if its sums are encoded for all ranks
};

// A reduction through a flat buffer and the queue, on any engine: a reduce-scatter in blocks, so that each
// rank sums its shard. For ddp an all-gather of each block follows with the lowest priority, because it is
// needed in the unit's next forward pass. The result is an all-reduce with a deferred second half (DeAR,
// Zhang et al., 2023).
class FlatGradients final : public UnitGradients {
 public:
  struct Place {
    std::string unit;
    Sharding sharding = Sharding::ddp;
    Group shard_group;    // ranks among which the unit is sharded
    Group replica_group;  // ranks that hold the same shard; not a member if there are none
    std::string codec;    // codec of float32 gradients; empty: none
  };
  // All arguments but `place` must outlive the object.
  FlatGradients(Place place, const FlatParameters& parameters, const GradientBuffers& gradient_buffers,
                CommunicationQueue& queue, BufferPool& buffers);

  void launch(const GradientWeight& weight, const BlockOrder& order) override;
  bool launched() const override { return launched_; }
  bool arrived() override;
  void finish(bool accumulate) override;
  const std::vector<at::Tensor>& result() const override { return result_; }
  void drop() override;
  void recycle() override;
  CommState memory() const override;

 private:
  // Returns the memory label of gradients: `kept` on this rank, or in flight.
  MemoryLabel label(bool kept) const;
  void copy_in(const GradientWeight& weight);
  void zero_padding();
  // Returns the operations for a block without a codec, in order: the parts of all ranks are summed into
  // `sum`.
  std::vector<BlockStep> plain_steps(const std::vector<at::Tensor>& parts, const at::Tensor& sum,
                                     Bytes bytes) const;
  at::Tensor range(const at::Tensor& flat, int rank, std::size_t block) const;
  void keep_shard(bool accumulate);
  void make_result();

  const Place place_;
  const MemoryUnit unit_;
  const FlatParameters& parameters_;
  const GradientBuffers& gradient_buffers_;
  CommunicationQueue& queue_;
  BufferPool& buffers_;
  std::unique_ptr<CodedBlocks> coded_;  // null without a codec
  at::Tensor flat_;                     // all gradients of this rank while in flight; for ddp then their sum
  at::Tensor incoming_;                 // this rank's shard of the sum being formed
  at::Tensor shard_;                    // sum over one pass or several, in the optimizer's dtype
  bool launched_ = false;
  std::vector<CommunicationQueue::Ticket> tickets_;
  std::vector<at::Tensor> result_;
};

}  // namespace rondo
