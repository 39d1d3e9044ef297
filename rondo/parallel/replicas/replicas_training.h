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

// Values that the replicas of all processes combine while they run.
class ReplicaValues {
 public:
  // `threads` are this process's replicas, and outlive the object; `workers` are all processes.
  ReplicaValues(ReplicaThreads& threads, Group workers);

  // Within ReplicaThreads::run(), called by every replica in the same order with values of one shape: the
  // same result for all, in memory of its own for each. Throws CommunicationError when a process is lost.
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
  // `exchange` is filled in before the first step, and outlives the object. With `updates` false another
  // replica has the variables, and changes them.
  ReplicaModel(std::shared_ptr<torch::nn::Module> module, const std::unique_ptr<ReplicaExchange>& exchange,
               bool updates)
      : module_(std::move(module)), exchange_(exchange), updates_(updates) {}

  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return *parts_; }
  // In place of the model's own alone.
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
