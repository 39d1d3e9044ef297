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

// The way of the gradients of one unit (of one dtype) from `.grad` of its parameters on every rank to where
// the optimizer wants their weighted sum: for ddp whole, otherwise this rank's shard. One thread.
class UnitGradients {
 public:
  virtual ~UnitGradients() = default;

  // All gradients of a backward pass are there: takes them out of `.grad` (a missing one is zero) and starts
  // their combination. Never waits. `order` places it among other units' communication.
  virtual void launch(const GradientWeight& weight, const BlockOrder& order) = 0;
  // Whether combining has been launched and not yet taken by finish().
  virtual bool launched() const = 0;
  // Whether finish() would not wait.
  virtual bool arrived() = 0;
  // Waits. The sum is then in result(), added to what was there if `accumulate`.
  virtual void finish(bool accumulate) = 0;

  // One tensor for each parameter of the unit, in its order: the part of its gradient that this rank
  // optimises, flat (maybe empty), or for ddp all of it in the parameter's shape. Undefined before the first
  // finish() and after drop().
  virtual const std::vector<at::Tensor>& result() const = 0;
  // Forgets the result: it is where the optimizer looks.
  virtual void drop() = 0;
  // The optimizer is through with it, and nobody else has it: its memory may be used again.
  virtual void recycle() {}
  // What is remembered from pass to pass (a codec's error feedback), by name: the tensors themselves, always
  // of the same sizes.
  virtual std::map<std::string, at::Tensor> memory() const { return {}; }
};

// Gradients on one host, through the native engine: reduced in the shared memory where autograd put them,
// without a buffer of their own. On one host communication is processor time, so what is not copied is
// gained.
class InPlaceGradients final : public UnitGradients {
 public:
  // `unit` is for the memory tracker and spans. `parameters`, `gradient_buffers` and `queue` outlive the
  // object.
  InPlaceGradients(const std::string& unit, Sharding sharding, const FlatParameters& parameters,
                   const GradientBuffers& gradient_buffers, const Group& group, CommunicationQueue& queue);

  void launch(const GradientWeight& weight, const BlockOrder& order) override;
  bool launched() const override { return !tickets_.empty(); }
  // The engine works inside calls, and finish() is the one.
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
  GradientWeight weight_;  // of this pass
  const Transfer::WeightSource weight_source_ = [this]() -> const GradientWeight& { return weight_; };
  std::vector<std::unique_ptr<InPlaceAllReduce>> transfers_;
  std::vector<CommunicationQueue::Ticket> tickets_;  // by transfer, while they are under way
  std::vector<at::Tensor> result_;
};

// About how many bytes a rank needs beside everything else for `codec` ("none": none), of a model with so
// many bytes of float32 gradients that `ranks` share: error feedback and encodings. Throws as
// collective::make_codec.
Bytes codec_memory(const std::string& codec, Bytes gradients, int ranks);

// One of the operations, one after the other, by which a block of gradients becomes what the optimizer needs.
struct BlockStep {
  const char* collective;
  Bytes bytes;                          // that this rank's part of the model moves
  std::function<BucketFuture()> start;  // begins it, without waiting; the one before it is finished
};

// A unit's float32 gradients as encodings of a codec, block by block: each rank sends every other one the
// encoding of its shard, which adds them up (coded_collectives.h); copies of the shard are combined by an
// all-reduce, and where every rank needs the whole sum each one sends the encoding of its own. What an
// encoding leaves out is added to the gradients of the next pass. Calls as of FlatGradients.
class CodedBlocks {
 public:
  // `replicas`: ranks that hold the same shard; not a member: there are none. `gathers`: every rank needs the
  // whole sum.
  CodedBlocks(const std::string& codec, const FlatLayout& layout, const Group& shards, const Group& replicas,
              bool gathers);

  // Encodes block `index`, of which parts[r] goes to rank r, and returns what is to be done, in order. The
  // last step leaves the sum of this rank's part in `sum`, and where all ranks need it the whole in `parts`.
  std::vector<BlockStep> encode(std::size_t index, const std::vector<at::Tensor>& parts,
                                const at::Tensor& sum, Bytes bytes);

  // The error feedback by name: the tensors themselves.
  std::map<std::string, at::Tensor> memory() const;

 private:
  struct Block {
    std::unique_ptr<CodedReduceScatter> scatter;  // null with one rank
    std::unique_ptr<CodedAllReduce> copies;       // null without copies
    std::unique_ptr<CodedAllGather> gather;       // null where nobody needs the whole
    std::vector<at::Tensor> residuals;            // by rank, of its part; views
    at::Tensor sum_residual;                      // of this rank's sum; a view
  };

  const bool gathers_;
  std::vector<Block> blocks_;
  at::Tensor residual_;      // of the whole buffer; undefined for a codec without
  at::Tensor sum_residual_;  // of this rank's shard, where sums are encoded for all
};

// Gradients through a flat buffer and the queue, on any engine: reduce-scatter in blocks, so that each
// rank adds up its shard. For ddp an all-gather of each block follows at the lowest urgency, which is the
// unit's next forward pass (DeAR, Zhang et al., 2023): an all-reduce cut in two where it can wait.
class FlatGradients final : public UnitGradients {
 public:
  struct Place {
    std::string unit;
    Sharding sharding = Sharding::ddp;
    Group shard_group;    // ranks among which the unit is sharded
    Group replica_group;  // ranks that hold the same shard; not a member: there are none
    std::string codec;    // of float32 gradients; empty: values travel
  };
  // All but `place` outlive the object.
  FlatGradients(Place place, const FlatParameters& parameters, const GradientBuffers& gradient_buffers,
                CommunicationQueue& queue, BufferPool& buffers);

  void launch(const GradientWeight& weight, const BlockOrder& order) override;
  bool launched() const override { return launched_; }
  bool arrived() override;
  void finish(bool accumulate) override;
  const std::vector<at::Tensor>& result() const override { return result_; }
  void drop() override;
  void recycle() override;
  std::map<std::string, at::Tensor> memory() const override;

 private:
  // Gradients are this rank's to keep, or on their way.
  MemoryLabel label(bool kept) const;
  void copy_in(const GradientWeight& weight);
  void zero_padding();
  // What is to be done with a block, in order: this rank's share of each rank's part becomes the sum.
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
  std::unique_ptr<CodedBlocks> coded_;  // null where values travel
  at::Tensor flat_;                     // all gradients of this rank, while they travel; ddp: then their sum
  at::Tensor incoming_;                 // this rank's shard of the sum being formed
  at::Tensor shard_;  // what has been summed, of one pass or several, in the dtype of the optimizer
  bool launched_ = false;
  std::vector<CommunicationQueue::Ticket> tickets_;
  std::vector<at::Tensor> result_;
};

}  // namespace rondo
