#pragma once

#include <memory>

#include "rondo/strategy/group_rates.h"
#include "rondo/strategy/strategy.h"
#include "rondo/strategy/strategy_reference.h"
#include "rondo/strategy/training.h"

namespace rondo {

// The training of strategies with one replica per process whose gradients are combined in every step. These
// strategies differ in their PreparedModel: in combining gradients and in placing parts of the model.
class SynchronousTraining final : public Training {
 public:
  // `strategy` must outlive the object; later calls of compile() and rebuild() throw UsageError. Throws
  // UsageError for an invalid precision, or one that the strategy does not support.
  SynchronousTraining(Strategy& strategy, const Recipe& recipe);

  void compile(OptimizerFactory optimizer, LossFunction loss) override;
  void state_loaded(std::int64_t steps) override;
  void hand_over(const std::vector<int>& leaving) override;
  int rebuild(const Context& context) override;
  StepResult train_step(std::span<const Batch> window, const StepSettings& settings) override;
  Tensors forward(const Batch& batch) override;
  const Model& model() const override { return model_; }
  torch::optim::Optimizer& optimizer() override;
  bool is_compiled() const { return optimizer_ != nullptr; }  // whether optimizer() is available
  TrainingPrecision& precision() override { return precision_; }
  PreparedModel& prepared() override { return *prepared_; }

 private:
  Loss loss_of(const Batch& batch);

  // Parts of rebuild(); `model` and `optimizer` are this rank's part of the newest state.
  void prepare_anew(const Context& context);
  void take_state(std::vector<Shard> model, std::vector<Shard> optimizer, const nlohmann::json& description);

  StrategyReference strategy_;
  c10::Device device_;
  TrainingPrecision precision_;
  Model model_;
  std::unique_ptr<PreparedModel> prepared_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  OptimizerFactory factory_;  // factory of optimizer_; empty before compile()
  // All parameters of the module. The optimizer may have only some of them, and gradients of the others would
  // accumulate over steps. Listing them in every step would take 10 us.
  std::vector<at::Tensor> parameters_;
  GroupRates rates_;
  LossFunction loss_;
  bool needs_norms_ = false;  // whether the optimizer reads norms that ranks sum
  std::int64_t steps_ = 0;    // number of steps whose updates are in the weights
  // State between hand_over() and rebuild(): from leaving ranks and, in full_copies, this rank's own model.
  ShardedState handed_over_;
  std::string lost_;  // reason why no step is possible: part of the state is on no rank
};

}  // namespace rondo
