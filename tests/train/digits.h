#pragma once

#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <memory>
#include <mutex>
#include <numeric>

#include "rondo/backend/context.h"
#include "rondo/models/model.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/trainer.h"
#include "tests/train/rows.h"

namespace rondo::testing {

// A small learnable classification task: the class is the position of the largest of eight features.
class Digits final : public Rows {
 public:
  explicit Digits(std::int64_t size, std::uint64_t seed = 1)
      : Digits(torch::randn({size, 8}, at::detail::createCPUGenerator(seed))) {}

 private:
  explicit Digits(const at::Tensor& inputs) : Rows(inputs, inputs.argmax(1), 8) {}
};

// Returns a model with the same weights in every call, on any thread.
inline Model small_model(double dropout = 0) {
  static std::mutex mutex;  // the default generator is shared
  const std::lock_guard lock(mutex);
  torch::manual_seed(7);
  auto module = std::make_shared<torch::nn::SequentialImpl>(
      torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Dropout(dropout), torch::nn::Linear(16, 8));
  Model model;
  model.name = "small";
  model.config = nlohmann::json::object();
  model.forward = [raw = module.get()](const at::Tensor& input) { return raw->forward(input); };
  model.module = module;
  return model;
}

inline OptimizerFactory adamw(double learning_rate = 1e-2) {
  return [learning_rate](torch::nn::Module& module) {
    return make_optimizer({.name = "adamw", .learning_rate = learning_rate}, module);
  };
}

inline std::unique_ptr<Strategy> strategy_for(const Context& context) {
  return all_strategies().make(context.world_size() == 1 ? "one_device" : "ddp", context);
}

// A callback that keeps its arguments.
class Recorder final : public Callback {
 public:
  std::string name() const override { return "recorder"; }
  void on_train_begin(Trainer&, const FitOutline& outline) override { outline_ = outline; }
  void on_step_end(Trainer&, const StepRecord& record) override { steps_.push_back(record); }
  void on_epoch_end(Trainer&, const EpochRecord& record) override { epochs_.push_back(record.epoch); }
  void on_validation_end(Trainer&, const ValidationRecord& record) override {
    validations_.push_back(record);
  }

  std::vector<double> losses() const {
    std::vector<double> losses;
    for (const StepRecord& step : steps_) losses.push_back(step.loss);
    return losses;
  }

  FitOutline outline_;
  std::vector<StepRecord> steps_;
  std::vector<std::int64_t> epochs_;
  std::vector<ValidationRecord> validations_;
};

}  // namespace rondo::testing
