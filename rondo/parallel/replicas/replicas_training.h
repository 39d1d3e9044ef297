#pragma once

#include <memory>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/parallel/replicas/replica_model.h"
#include "rondo/parallel/replicas/replica_threads.h"
#include "rondo/parallel/replicas/replica_values.h"
#include "rondo/strategy/synchronous_training.h"

namespace rondo {

// How a process trains several replicas.
struct ReplicasSettings {
  std::string strategy;                   // its name, for messages
  std::vector<c10::Device> devices = {};  // of the replicas; empty: all on the recipe's
  ReplicaGradients::Options gradients = {};
  // Replica 0 has the variables, the others compute with its memory, and only its optimizer steps.
  bool central_variables = false;
  WorkerExchangeOptions workers = {};  // between processes
  bool workers_need_nccl = false;      // processes combine gradients over NCCL alone
};

// The training of several replicas in one process, each in its thread: a batch is divided among them, each
// takes a step of its own on its part, and between backward and optimizer gradients are combined. Within
// run() of the strategy the methods of the calling thread's replica are those of its own model.
//
// Buffers (running statistics of batch norms) are each replica's own in training. Wherever the whole model is
// looked at, in an evaluation or a checkpoint, the floating-point ones become their mean over all replicas,
// others those of replica 0.
class ReplicasTraining final : public Training {
 public:
  // Collective. Throws UsageError for what this strategy cannot.
  ReplicasTraining(Strategy& strategy, std::shared_ptr<ReplicaThreads> threads,
                   const ReplicasSettings& settings, const Recipe& recipe);
  ~ReplicasTraining() override;

  void compile(OptimizerFactory optimizer, LossFunction loss) override;
  StepResult train_step(std::span<const Batch> window, const StepSettings& settings) override;
  Tensors forward(const Batch& batch) override { return own().forward(batch); }
  ProcessReplicas process_replicas() const override {
    return {.concurrent_forwards = threads_->size(), .peak_bytes = threads_->peak_bytes()};
  }
  const Model& model() const override { return own().model(); }
  torch::optim::Optimizer& optimizer() override { return own().optimizer(); }
  TrainingPrecision& precision() override { return own().precision(); }
  PreparedModel& prepared() override { return own().prepared(); }

 private:
  class Parts;
  class OfReplica;
  struct Replica {
    std::unique_ptr<OfReplica> strategy;
    std::unique_ptr<SynchronousTraining> training;
  };

  void prepare_replica(int replica, Model model, const Recipe& recipe);
  SynchronousTraining& own() const {
    return *replicas_[static_cast<std::size_t>(threads_->current())].training;
  }
  SynchronousTraining& of(std::size_t replica) const { return *replicas_[replica].training; }
  // Every replica gets what the first one has: weights, buffers, and what optimizer and precision remember.
  void spread_from_first();
  void average_buffers();

  std::shared_ptr<ReplicaThreads> threads_;
  ReplicasSettings settings_;
  Context own_context_;  // of this process alone
  Group workers_;        // all processes
  ReplicaValues values_;
  std::unique_ptr<ReplicaExchange> exchange_;
  std::vector<Replica> replicas_;
};

}  // namespace rondo
