#include "rondo/train/trainer.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/random_state.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/train/agreement.h"
#include "rondo/train/evaluation.h"
#include "rondo/train/fit_loop.h"

namespace rondo {

Trainer::Trainer(Strategy& strategy, Model model, c10::Device device)
    : strategy_(strategy),
      model_(std::move(model)),
      device_(device),
      loss_(cross_entropy),
      metrics_{loss_metric()} {
  model_.module->to(device_);
  name_sample_dropouts(*model_.module);
  prepared_ = strategy_.prepare(model_.module);
}

Trainer::~Trainer() = default;

void Trainer::compile(const OptimizerFactory& optimizer, LossFunction loss, std::vector<Metric> metrics) {
  optimizer_ = optimizer(prepared_->module());
  loss_ = std::move(loss);
  metrics_ = std::move(metrics);
}

FitResult Trainer::fit(const std::shared_ptr<const Dataset>& data, const FitOptions& options) {
  require_compiled();
  callbacks_ = options.callbacks;
  for (const auto& callback : callbacks_) {
    const auto state = callback_states_.find(callback->name());
    if (state != callback_states_.end()) callback->restore(*state);
  }
  std::optional<FitLoop> loop;
  run_agreed(strategy_.context(), [&] { loop.emplace(*this, data, options); });
  return loop->run();
}

std::map<std::string, double> Trainer::evaluate(const Dataset& data, const EvaluateOptions& options) {
  paused_ = true;
  return evaluate_exactly(strategy_, model_, device_, loss_, metrics_, data, options.batch_size);
}

at::Tensor Trainer::predict(const Dataset& data, const EvaluateOptions& options) {
  paused_ = true;
  return predict_all(strategy_, model_, device_, data, options.batch_size);
}

void Trainer::save(const std::filesystem::path& root, int keep) {
  require_compiled();
  paused_ = true;
  const Context& context = strategy_.context();
  TrainingState state = training_state();
  state.random_states = gather(random_state(device_), context.world(), 0);
  for (const auto& callback : callbacks_) callback_states_[callback->name()] = callback->state();
  state.values = {{"step", position_.step},
                  {"epoch", position_.epoch},
                  {"batch", position_.batch},
                  {"elapsed_s", position_.elapsed_s},
                  {"world_size", context.world_size()},
                  {"model", {{"name", model_.name}, {"config", model_.config}}},
                  {"sampling", sampling_},
                  {"callbacks", callback_states_}};
  // Replicas are equal, so one rank writes; the others learn whether it could.
  run_agreed(context, [&] {
    if (context.rank() == 0) save_checkpoint(root, position_.step, state, keep);
  });
}

void Trainer::restore(const std::filesystem::path& checkpoint) {
  require_compiled();
  const Context& context = strategy_.context();
  run_agreed(context, [&] {
    TrainingState state = training_state();
    load_checkpoint(checkpoint, state);
    const nlohmann::json& values = state.values;
    position_ = {.step = values.at("step"),
                 .epoch = values.at("epoch"),
                 .batch = values.at("batch"),
                 .elapsed_s = values.at("elapsed_s")};
    sampling_ = values.at("sampling");
    callback_states_ = values.at("callbacks");
    // At another world size the ranks' random streams cannot continue; they start anew, as at the start of a
    // run.
    const auto rank = static_cast<std::size_t>(context.rank());
    if (static_cast<int>(state.random_states.size()) == context.world_size()) {
      set_random_state(state.random_states[rank], device_);
    }
  });
}

TrainingState Trainer::training_state() {
  TrainingState state;
  state.model = named_tensors(*model_.module);
  state.optimizers = {{"optimizer", optimizer_.get()}};
  return state;
}

torch::optim::Optimizer& Trainer::optimizer() {
  require_compiled();
  return *optimizer_;
}

void Trainer::require_compiled() const {
  if (!optimizer_) throw UsageError("call Trainer::compile with an optimizer before training");
}

}  // namespace rondo
