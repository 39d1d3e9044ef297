#pragma once

#include <memory>
#include <vector>

#include "rondo/parallel/replicas/replica_gradients.h"
#include "rondo/parallel/replicas/replicas_strategy.h"
#include "rondo/strategy/synchronous_training.h"

namespace rondo {

// A model's forward over several replicas, as PyTorch's DataParallel: every call replicates the source's
// parameters and buffers, scatters the inputs along their first dimension, applies the replicas in parallel,
// and gathers the outputs on the first device, where the loss is computed of all of them. The backward pass
// goes the same way back. Replica 0 is the source itself.
class DataParallelForward {
 public:
  // `threads` outlives the object. Replicas are on `devices`.
  DataParallelForward(ReplicaThreads& threads, std::vector<Model> models, std::vector<c10::Device> devices);

  Model& source() { return models_.front(); }
  // Replicas take over the dtypes of the source as it is now. Before the first pass.
  void adopt_source();
  // Inputs and outputs of the source's forward. The inputs' first dimension is the samples.
  Tensors forward(const Tensors& inputs);
  // Adds the replicas' gradients to the source's.
  void add_gradients();

 private:
  class Gather;
  void replicate(int replica);

  ReplicaThreads& threads_;
  std::vector<Model> models_;
  std::vector<c10::Device> devices_;
  std::unique_ptr<ReplicaGradients> gradients_;
};

// Strategy data_parallel: the model, its gradients and its optimizer are those of the first replica, which
// therefore takes more memory than the others. Buffers of the others are lost after each pass. As with
// PyTorch's, a loop of one's own is that of one process: run() calls a step once, with the joint batch, and
// the model's forward divides it.
class DataParallel final : public ReplicasStrategy {
 public:
  using ReplicasStrategy::prepare;
  using ReplicasStrategy::ReplicasStrategy;
  std::unique_ptr<Training> prepare(const Recipe& recipe) override;
  ReplicaPlacement placement() const override;
  using ReplicasStrategy::run;
  ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override;
};

}  // namespace rondo
