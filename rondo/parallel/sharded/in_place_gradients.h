#pragma once

#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/memory/scope.h"
#include "rondo/parallel/gradients/in_place_all_reduce.h"
#include "rondo/parallel/schedule/communication_queue.h"
#include "rondo/parallel/sharded/flat_parameters.h"
#include "rondo/parallel/sharded/gradient_buffers.h"
#include "rondo/parallel/sharded/sharding.h"
#include "rondo/parallel/sharded/unit_gradients.h"

namespace rondo {

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

}  // namespace rondo
