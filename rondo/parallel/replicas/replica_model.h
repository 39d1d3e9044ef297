#pragma once

#include <memory>
#include <optional>

#include "rondo/parallel/replicas/replica_exchange.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/process_strategy.h"

namespace rondo {

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

}  // namespace rondo
