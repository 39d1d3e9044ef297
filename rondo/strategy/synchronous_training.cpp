#include "rondo/strategy/synchronous_training.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/base/collective_call.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/strategy/finish_step.h"

namespace rondo {
namespace {

Tensors moved(const Tensors& tensors, c10::Device device) {
  Tensors result;
  result.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.to(device));
  return result;
}

}  // namespace

SynchronousTraining::SynchronousTraining(Strategy& strategy, const Recipe& recipe)
    : strategy_(strategy, "Training"),
      device_(recipe.device),
      precision_(recipe.precision, recipe.device, strategy.context().world()),
      model_(next_model(recipe.model)),
      loss_(recipe.loss) {
  torch::nn::Module& module = *model_.module;
  module.to(device_);
  if (precision_.settings().master_weights &&
      strategy_->set_mixed_precision(precision_.policy_for_strategy())) {
    precision_.leave_master_weights_to_strategy();
  }
  precision_.cast(module);
  if (recipe.on_model) recipe.on_model(model_);
  name_sample_dropouts(module);
  prepared_ = strategy_->prepare(model_.module);
  prepared_->combine_totals_over(strategy_->replicas());
  model_.forward = [this,
                    forward = precision_.cast_around(std::move(model_.forward))](const Tensors& inputs) {
    Tensors cast;
    for (const at::Tensor& input : inputs) cast.push_back(prepared_->cast_input(input));
    Tensors outputs = forward.run(cast);
    for (at::Tensor& output : outputs) output = prepared_->cast_output(output);
    return outputs;
  };
  const ModelParts& parts = prepared_->parts();
  if (precision_.settings().master_weights && !parts.computes_with_optimized() &&
      !parts.has_fp32_master_weights()) {
    throw UsageError(
        str("strategy ", strategy_->name(),
            " gives the optimizer shards of the parameters, of which no master weights can be kept; "
            "use opt level O0, O1 or O3 with it, or a strategy that replicates the model"));
  }
  precision_.keep_master_weights(prepared_->module());
  if (recipe.optimizer) compile(recipe.optimizer, recipe.loss);
}

void SynchronousTraining::compile(OptimizerFactory optimizer, LossFunction loss) {
  MasterWeights* const masters = precision_.master_weights();
  factory_ = std::move(optimizer);
  optimizer_ = factory_(masters != nullptr ? masters->module() : prepared_->module());
  parameters_ = prepared_->module().parameters();
  rates_ = GroupRates(*optimizer_);
  loss_ = prepared_->division().loss_of_parts(std::move(loss));
  needs_norms_ = prepared_->parts().optimizes_shards() &&
                 add_up_norms(*optimizer_, *prepared_, precision_, str("strategy ", strategy_->name()),
                              "adamw or lion, or strategy ddp");
}

torch::optim::Optimizer& SynchronousTraining::optimizer() {
  if (!optimizer_) throw UsageError("call compile with an optimizer before training");
  return *optimizer_;
}

Tensors SynchronousTraining::forward(const Batch& batch) {
  const SampleDivision& division = prepared_->division();
  return division.whole_outputs(model_.forward.run(moved(division.own_part(batch).inputs, device_)));
}

Loss SynchronousTraining::loss_of(const Batch& batch) {
  const Tensors targets = moved(batch.targets, device_);
  const auto autocast = precision_.autocast();
  return loss_(model_.forward.run(moved(batch.inputs, device_)), targets, batch.samples);
}

StepResult SynchronousTraining::train_step(std::span<const Batch> window, const StepSettings& settings) {
  const CollectiveCallScope call(CollectiveCall::train_step);
  const auto phase = [&](StepPhase begins) {
    if (settings.on_phase) settings.on_phase(begins);
  };
  if (!lost_.empty()) throw UsageError(lost_);
  handed_over_ = {};
  std::vector<Batch> batches;
  std::int64_t predictions = 0;
  for (const Batch& batch : window) {
    batches.push_back(prepared_->division().own_part(batch));
    predictions += loss_.predictions(batch.targets, batch.samples);
  }
  // A loss that does not count predictions is a mean over each rank's part; these parts have one size.
  const int ranks = loss_.counts_predictions() ? prepared_->division().ranks_of_sequence() : 1;
  optimizer().zero_grad();
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();

  StepResult result;
  for (const Batch& batch : batches) {
    const bool last = &batch == &batches.back();
    prepared_->begin_step(
        {.samples = predictions,
         .synchronise = last,
         .gradients_are_read = settings.clip_norm > 0 || needs_norms_ || precision_.reads_gradients(),
         .optimizer = optimizer_.get()});
    // The gradient of the window is the mean over its predictions, so each batch is weighted by its share of
    // them.
    const bool whole = (batches.size() == 1 && ranks == 1) || predictions == 0;
    const double share = whole
                             ? 1.0
                             : static_cast<double>(ranks * loss_.predictions(batch.targets, batch.samples)) /
                                   static_cast<double>(predictions);
    const SampleScope scope({.seed = settings.seed,
                             .step = static_cast<std::uint64_t>(settings.step),
                             .indices = batch.indices,
                             .weight = static_cast<double>(predictions),
                             .loss_scale = share * precision_.loss_scale().value_or(1.0)});
    phase(StepPhase::forward);
    const Loss loss = loss_of(batch);
    phase(StepPhase::backward);
    result.totals.loss += loss.sum.item<double>();
    result.totals.predictions += loss.predictions;
    result.totals.samples += batch.samples;
    if (last) {
      result.totals.stop = settings.stop_requested && settings.stop_requested();
      prepared_->announce(result.totals);
      // After the forward pass, in which some strategies complete the previous step, and before the backward
      // pass, in which others start this one.
      if (settings.learning_rate) rates_.set(*optimizer_, *settings.learning_rate);
    }
    precision_.scale(whole ? loss.mean : loss.mean * share).backward();
  }
  phase(StepPhase::waiting);
  prepared_->finish_backward();
  phase(StepPhase::optimizer);
  finish_step(*prepared_, precision_, *optimizer_, settings, result);
  throw_if_failed(*strategy_->context().world().backend());
  steps_ = std::max(steps_, settings.step) + 1;
  phase(StepPhase::end);
  result.totals = prepared_->totals();
  return result;
}

}  // namespace rondo
