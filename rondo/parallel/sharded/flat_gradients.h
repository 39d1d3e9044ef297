#pragma once

#include <map>
#include <memory>
#include <string>

#include "rondo/backend/group.h"
#include "rondo/parallel/schedule/communication_queue.h"
#include "rondo/parallel/sharded/coded_blocks.h"
#include "rondo/parallel/sharded/flat_parameters.h"
#include "rondo/parallel/sharded/gradient_buffers.h"
#include "rondo/parallel/sharded/sharding.h"
#include "rondo/parallel/sharded/unit_gradients.h"

namespace rondo {

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
