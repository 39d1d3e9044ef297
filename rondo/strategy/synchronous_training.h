#pragma once

#include <memory>

#include "rondo/strategy/group_rates.h"
#include "rondo/strategy/strategy.h"
#include "rondo/strategy/strategy_reference.h"
#include "rondo/strategy/training.h"

namespace rondo {

// The training of strategies with one replica a process, whose gradients are combined in every step. What
// differs between them is their PreparedModel: how gradients are combined, and what of the model is where.
class SynchronousTraining final : public Training {
 public:
  // `strategy` must outlive the object; compile() and rebuild() throw UsageError after its end. Throws
  // UsageError for a precision that cannot be, or not with this strategy.
  SynchronousTraining(Strategy& strategy, const Recipe& recipe);

  void compile(OptimizerFactory optimizer, LossFunction loss) override;
  void state_loaded(std::int64_t steps) override;
  void hand_over(const std::vector<int>& leaving) override;
  int rebuild(const Context& context) override;
  StepResult train_step(std::span<const Batch> window, const StepSettings& settings) override;
  Tensors forward(const Batch& batch) override;
  const Model& model() const override { return model_; }
  torch::optim::Optimizer& optimizer() override;
  bool is_compiled() const { return optimizer_ != nullptr; }  // whether optimizer() has one
  TrainingPrecision& precision() override { return precision_; }
  PreparedModel& prepared() override { return *prepared_; }

 private:
  Loss loss_of(const Batch& batch);

  // rebuild() in steps; `model` and `optimizer` are what this rank has of the newest state.
  void prepare_anew(const Context& context);
  void take_state(std::vector<Shard> model, std::vector<Shard> optimizer, const nlohmann::json& description);

  StrategyReference strategy_;
  c10::Device device_;
  TrainingPrecision precision_;
  Model model_;
  std::unique_ptr<PreparedModel> prepared_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  OptimizerFactory factory_;  // of optimizer_; empty before compile()
  // Of the module. The optimizer may have some of them only: gradients of the others would add up over the
  // steps. To ask the module in every step would take ten microseconds.
  std::vector<at::Tensor> parameters_;
  GroupRates rates_;
  LossFunction loss_;
  bool needs_norms_ = false;  // the optimizer looks at norms that ranks add up
  std::int64_t steps_ = 0;    // whose updates are in the weights
  // Until rebuild(): what ranks that leave have given, and in full_copies what this rank has of the model.
  ShardedState handed_over_;
  std::string lost_;  // why no step can be done: part of the state is on no rank
};

}  // namespace rondo
