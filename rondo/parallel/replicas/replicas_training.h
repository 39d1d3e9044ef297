#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/parallel/replicas/replica_exchange.h"
#include "rondo/parallel/replicas/replica_threads.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/process_strategy.h"
#include "rondo/strategy/synchronous_training.h"

namespace rondo {

// Collectives on values of the replicas of all processes.
class ReplicaValues {
 public:
  // `threads`: this process's replicas; they must outlive the object. `workers`: all processes.
  ReplicaValues(ReplicaThreads& threads, Group workers);

  // Reduces `value` over all replicas. Every replica calls it within ReplicaThreads::run(), in the same order
  // and with values of one shape. All replicas get the same result, each in its own memory. Throws
  // CommunicationError if a process is lost.
  at::Tensor all_reduce(ReduceOp op, const at::Tensor& value);

 private:
  ReplicaThreads& threads_;
  Group workers_;
  std::vector<at::Tensor> values_;  // by replica
  at::Tensor result_;
};

// The model of one replica of a process, in training.
class ReplicaModel final : public PreparedModel {
 public:
  // `exchange` is set before the first step, and must outlive the object. If `updates` is false, another
  // replica owns and updates the variables.
  ReplicaModel(std::shared_ptr<torch::nn::Module> module, const std::unique_ptr<ReplicaExchange>& exchange,
               bool updates)
      : module_(std::move(module)), exchange_(exchange), updates_(updates) {}

  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return *parts_; }
  // Replaces the parts, which by default are the model's own.
  void set_parts(std::unique_ptr<ModelParts> parts) { parts_ = std::move(parts); }

  void announce(const StepTotals& mine) override { totals_ = mine; }
  StepTotals totals() override { return totals_; }
  CommunicationState communication_state() const override {
    return exchange_ ? exchange_->communication_state() : CommunicationState();
  }
  std::string restore_communication(const std::vector<CommunicationState>& of_ranks) override {
    return exchange_ ? exchange_->restore_communication(of_ranks) : std::string();
  }
  CommunicationTimes communication_times() const override {
    return exchange_ && batch_.synchronise ? exchange_->times() : CommunicationTimes();
  }
  std::vector<TraceSpan> communication_spans() const override {
    return exchange_ && batch_.synchronise ? exchange_->spans() : std::vector<TraceSpan>();
  }

 private:
  void start_pass(const LocalBatch& batch) override {
    batch_ = batch;
    totals_ = {};
  }
  void finish_pass() override {
    if (!batch_.synchronise) return;
    totals_ = exchange_->combine({.samples = static_cast<double>(batch_.samples), .totals = totals_});
  }
  void apply_step(torch::optim::Optimizer& optimizer) override {
    if (updates_) optimizer.step();
  }

  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<ModelParts> parts_ = std::make_unique<UndividedModel>(*module_);
  const std::unique_ptr<ReplicaExchange>& exchange_;
  bool updates_;
  LocalBatch batch_;
  StepTotals totals_;
};

// Settings for training several replicas in a process.
struct ReplicasSettings {
  std::string strategy;                   // name of the strategy, for messages
  std::vector<c10::Device> devices = {};  // devices of the replicas; empty: the recipe's for all
  ReplicaGradients::Options gradients = {};
  // Whether only replica 0 owns variables: the others compute with its memory, and only its optimizer steps.
  bool central_variables = false;
  WorkerExchangeOptions workers = {};  // options between processes
  bool workers_need_nccl = false;      // whether processes must reduce gradients over NCCL
};

// Training of several replicas in one process, each in its thread. A batch is divided among the replicas.
// Each replica runs a step on its part, and gradients are reduced between backward and the optimizer. Within
// run() of the strategy, the methods act on the model of the calling thread's replica.
//
// In training, buffers (running statistics of batch norms) are local to each replica. For an evaluation or a
// checkpoint, floating-point buffers become their mean over all replicas, and others get the values of
// replica 0.
class ReplicasTraining final : public Training {
 public:
  // Throws UsageError for a recipe that this strategy does not support. Collective.
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
  // Copies the first replica's weights, buffers, optimizer state and precision state to all others.
  void spread_from_first();
  void average_buffers();

  std::shared_ptr<ReplicaThreads> threads_;
  ReplicasSettings settings_;
  Context own_context_;  // context of this process alone
  Group workers_;        // all processes
  ReplicaValues values_;
  std::unique_ptr<ReplicaExchange> exchange_;
  std::vector<Replica> replicas_;
};

}  // namespace rondo
