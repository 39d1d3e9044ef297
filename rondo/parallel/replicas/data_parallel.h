#pragma once

#include <memory>
#include <vector>

#include "rondo/parallel/replicas/replica_gradients.h"
#include "rondo/parallel/replicas/replicas_strategy.h"
#include "rondo/strategy/synchronous_training.h"

namespace rondo {

// A model's forward over several replicas, like PyTorch's DataParallel. Every call copies the source's
// parameters and buffers to the replicas, scatters the inputs along their first dimension, and runs the
// replicas in parallel. Then it gathers the outputs on the first device, where the loss is computed. The
// backward pass runs through the replicas in parallel, too. Replica 0 is the source itself.
class DataParallelForward {
 public:
  // `threads` must outlive the object. `devices`: devices of the replicas.
  DataParallelForward(ReplicaThreads& threads, std::vector<Model> models, std::vector<c10::Device> devices);

  Model& source() { return models_.front(); }
  // Gives replicas the current dtypes and devices of the source. Call it before the first pass.
  void adopt_source();
  // Runs the source's forward on all replicas. The inputs' first dimension counts samples.
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

// Strategy data_parallel. The first replica has the model, its gradients and its optimizer, so it uses more
// memory than the others. Buffers of the other replicas are lost after each pass. As with PyTorch's
// DataParallel, a custom loop looks like that of one process: run() calls a step once, with the joint batch,
// and the model's forward divides it.
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
