#include "rondo/parallel/pipeline/pipeline_strategy.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "rondo/backend/point_to_point.h"
#include "rondo/base/collective_call.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/nn/experts/mixture_of_experts.h"
#include "rondo/nn/layers.h"
#include "rondo/nn/model.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/unit_state.h"
#include "rondo/parallel/ddp/ddp_strategy.h"
#include "rondo/parallel/gradients/model_agreement.h"
#include "rondo/parallel/tensor/tensor_parallel_model.h"
#include "rondo/pipeline/schedule.h"
#include "rondo/pipeline/stage_cuts.h"
#include "rondo/precision/autocast.h"
#include "rondo/strategy/finish_step.h"
#include "rondo/strategy/one_device.h"

namespace rondo {
namespace {

using pipeline::Action;
using pipeline::ActionKind;

// Returns part `number` of `count` parts of a batch. Samples are divided evenly; the first parts have one
// more.
Batch part_of(const Batch& batch, std::int64_t number, std::int64_t count) {
  const std::int64_t size = batch.samples / count, more = batch.samples % count;
  const std::int64_t first = number * size + std::min(number, more);
  Batch part;
  part.samples = size + (number < more ? 1 : 0);
  const auto narrow = [&](const Tensors& tensors) {
    Tensors parts;
    for (const at::Tensor& tensor : tensors) parts.push_back(tensor.narrow(0, first, part.samples));
    return parts;
  };
  part.inputs = narrow(batch.inputs);
  part.targets = narrow(batch.targets);
  if (!batch.indices.empty()) {
    part.indices.assign(batch.indices.begin() + first, batch.indices.begin() + first + part.samples);
  }
  return part;
}

std::string shapes_of(const Tensors& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) text += str("[", join(tensor.sizes(), ","), "]");
  return text;
}

Tensors moved_to(const Tensors& tensors, c10::Device device) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.to(device));
  return result;
}

// Returns leaves with the same values, for a stage on the same rank: a new graph begins there.
Tensors leaves_of(const Tensors& tensors) {
  Tensors leaves;
  for (const at::Tensor& tensor : tensors)
    leaves.push_back(tensor.detach().requires_grad_(tensor.requires_grad()));
  return leaves;
}

// Returns the schedule with messages in the order that the group's engine requires.
pipeline::Schedule messages_for(const Group& group, c10::Device device, pipeline::Schedule schedule) {
  return matches_by_order(group, device) ? in_message_order(schedule) : schedule;
}

double now_s() { return static_cast<double>(monotonic_ns()) * 1e-9; }

// A scope that records one computation.
class SlotNote {
 public:
  SlotNote(std::vector<pipeline::Slot>& slots, const Action& action)
      : slots_(slots), slot_{action, now_s(), 0} {}
  SlotNote(const SlotNote&) = delete;
  SlotNote& operator=(const SlotNote&) = delete;
  ~SlotNote() {
    slot_.end_s = now_s();
    slots_.push_back(slot_);
  }

 private:
  std::vector<pipeline::Slot>& slots_;
  pipeline::Slot slot_;
};

}  // namespace

PipelineTraining::PipelineTraining(Strategy& strategy, Strategy& replicas, const Recipe& recipe,
                                   const PipelineOptions& options,
                                   const std::optional<TensorOptions>& division)
    : device_(recipe.device),
      pipeline_(strategy.context().group("pipeline")),
      precision_(recipe.precision, recipe.device, strategy.context().world()),
      schedule_(
          messages_for(pipeline_, recipe.device,
                       pipeline::make_schedule(options.schedule, pipeline_.size(),
                                               static_cast<int>(options.micro_batches), options.chunks))),
      evaluation_(messages_for(pipeline_, recipe.device, pipeline::forward_only(schedule_))),
      model_(next_model(recipe.model)),
      link_(pipeline_, schedule_.stages(), recipe.device),
      loss_(recipe.loss) {
  torch::nn::Module& module = *model_.module;
  if (schedule_.micro_batches < schedule_.ranks && strategy.context().rank() == 0) {
    const pipeline::Simulation run = simulate(schedule_, pipeline::StageTimes{});
    log::warning("--micro-batches ", schedule_.micro_batches, " are fewer than the ", schedule_.ranks,
                 " ranks of the pipeline, which are idle for ", std::lround(run.bubble() * 100),
                 " % of each step");
  }
  module.to(device_);
  leave_master_weights_to(replicas);
  precision_.cast(module);
  if (recipe.on_model) recipe.on_model(model_);
  name_sample_dropouts(module);
  const ModelTensors tensors = tensors_of(module);
  broadcast_coalesced(tensors.all_tensors(), strategy.context().world(), 0);
  cut(strategy.context(), replicas, options, division);
  precision_.keep_master_weights(prepared_->module());
  if (recipe.optimizer) compile(recipe.optimizer, recipe.loss);
}

// Delegates float32 master weights to the strategy along data if that strategy shards parameters.
void PipelineTraining::leave_master_weights_to(Strategy& replicas) {
  if (!precision_.settings().master_weights) return;
  const MixedPrecisionPolicy policy = precision_.policy_for_strategy();
  if (!replicas.set_mixed_precision(policy)) return;
  const auto modules = model_.module->modules();
  const bool has_batch_norm =
      std::any_of(modules.begin(), modules.end(), [](const auto& module) { return is_batch_norm(*module); });
  if (policy.keep_batchnorm_fp32 && has_batch_norm) {
    throw UsageError(str("strategy ", replicas.name(),
                         " along data is given the parameters of a stage without their layers, and cannot "
                         "leave batch normalisation in float32; use ddp, or set keep_batchnorm_fp32 "
                         "(keep-batchnorm-fp32) to false"));
  }
  precision_.leave_master_weights_to_strategy();
}

void PipelineTraining::cut(const Context& context, Strategy& replicas, const PipelineOptions& options,
                           const std::optional<TensorOptions>& division) {
  DividedModel divided;
  if (division) divided = divide_model(*model_.module, context, *division);
  std::vector<ModelLayer> layers = layers_of(model_);
  cast_ends(layers);
  std::vector<std::string> names;
  std::vector<pipeline::UnitCost> costs;
  for (const ModelLayer& layer : layers) {
    names.push_back(layer.name);
    pipeline::UnitCost& cost = costs.emplace_back();
    for (const at::Tensor& tensor : layer.tensors) cost.state_bytes += tensor.nbytes();
    cost.seconds = static_cast<double>(cost.state_bytes);
  }
  std::vector<int> first = options.stage_cuts.empty()
                               ? pipeline::balanced_cuts(costs, stages())
                               : pipeline::cuts_at(names, options.stage_cuts, stages());
  first.push_back(static_cast<int>(layers.size()));

  const torch::nn::Module& module = *model_.module;
  const std::vector<UnitState*> units = units_of(module);
  // A unit that recomputes its activations can do so only once. Experts without tokens are not in the graph,
  // so ranks that exchange tokens would cut it differently.
  const bool splits =
      expert_layers(module).empty() &&
      std::none_of(units.begin(), units.end(), [](const UnitState* unit) { return unit->checkpointed(); });
  const std::vector<at::Tensor> tensors = tensors_of(module).all_tensors();
  std::vector<std::vector<int>> owners(tensors.size());
  for (int number = 0; number < stages(); ++number) {
    const auto begin = layers.begin() + first[static_cast<std::size_t>(number)];
    const auto end = layers.begin() + first[static_cast<std::size_t>(number) + 1];
    auto stage = std::make_unique<Stage>(std::vector<ModelLayer>(begin, end), splits);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const bool has = std::any_of(stage->tensors().begin(), stage->tensors().end(),
                                   [&](const at::Tensor& tensor) { return tensor.is_same(tensors[i]); });
      if (has) owners[i].push_back(rank_of(number));
    }
    if (is_here(number)) stages_[number] = std::move(stage);
  }
  for (std::vector<int>& ranks : owners) {
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  }
  auto parts = std::make_unique<PipelineModel>(model_.module, context, replicas, std::move(owners));
  parts_of_stages_ = parts.get();
  prepared_ = std::move(parts);
  if (division)
    prepared_ = std::make_unique<TensorParallelModel>(std::move(prepared_), std::move(divided), context);
}

// Casts the inputs of the model to its low-precision dtype, and its outputs to float32.
void PipelineTraining::cast_ends(std::vector<ModelLayer>& layers) const {
  const std::optional<at::ScalarType> dtype = precision_.settings().cast_model_type;
  if (!dtype) return;
  const auto cast = [](Tensors tensors, at::ScalarType to) {
    for (at::Tensor& tensor : tensors) {
      if (tensor.is_floating_point()) tensor = tensor.to(to);
    }
    return tensors;
  };
  layers.front().forward = [=, forward = layers.front().forward](const Tensors& inputs) {
    return forward.run(cast(inputs, *dtype));
  };
  layers.back().forward = [=, forward = layers.back().forward](const Tensors& inputs) {
    return cast(forward.run(inputs), at::kFloat);
  };
}

void PipelineTraining::compile(OptimizerFactory optimizer, LossFunction loss) {
  MasterWeights* const masters = precision_.master_weights();
  optimizer_ = optimizer(masters != nullptr ? masters->module() : prepared_->module());
  rates_ = GroupRates(*optimizer_);
  loss_ = prepared_->division().loss_of_parts(std::move(loss));
  needs_norms_ = add_up_norms(*optimizer_, *prepared_, precision_, "this mesh",
                              "adamw or lion, or ddp along data alone");
}

torch::optim::Optimizer& PipelineTraining::optimizer() {
  if (!optimizer_) throw UsageError("call compile with an optimizer before training");
  return *optimizer_;
}

PipelineTraining::Pass PipelineTraining::begin(const Batch& batch) const {
  Pass pass;
  for (int i = 0; i < schedule_.micro_batches; ++i) {
    pass.micro_batches.push_back(part_of(batch, i, schedule_.micro_batches));
    pass.about.push_back(
        str(shapes_of(pass.micro_batches.back().inputs), at::GradMode::is_enabled() ? " trained" : ""));
  }
  return pass;
}

StepResult PipelineTraining::train_step(std::span<const Batch> window, const StepSettings& settings) {
  const CollectiveCallScope call(CollectiveCall::train_step);
  const auto phase = [&](StepPhase begins) {
    if (settings.on_phase) settings.on_phase(begins);
  };
  optimizer().zero_grad();
  // The optimizer may have only some of the parameters; gradients of the others would accumulate over steps.
  prepared_->module().zero_grad();
  for (const auto& [number, stage] : stages_) stage->clear_gradients();
  computed_.clear();
  waits_.clear();
  waited_ns_ = 0;
  std::vector<Batch> batches;
  std::int64_t predictions = 0;
  for (const Batch& batch : window) {
    batches.push_back(prepared_->division().own_part(batch));
    predictions += loss_.predictions(batch.targets, batch.samples);
  }
  prepared_->begin_step(
      {.samples = predictions,
       .gradients_are_read = settings.clip_norm > 0 || needs_norms_ || precision_.reads_gradients()});
  // Only the last stage has the loss, but all ranks must ask the scaler to scale.
  if (!is_here(stages() - 1)) precision_.scale(at::zeros({}, at::TensorOptions(device_)));
  StepResult result;
  for (const Batch& batch : batches) {
    Pass pass = begin(batch);
    pass.predictions = predictions;
    phase(StepPhase::forward);
    bool forward = true;
    for (const Action& action : schedule_.actions[static_cast<std::size_t>(pipeline_.rank())]) {
      if (forward && (action.kind == ActionKind::backward || action.kind == ActionKind::backward_input)) {
        forward = false;
        phase(StepPhase::backward);
      }
      act(action, pass, settings);
    }
    link_.flush();
    result.totals.loss += pass.loss;
    result.totals.predictions += loss_.predictions(batch.targets, batch.samples);
    result.totals.samples += batch.samples;
  }
  result.totals.stop = settings.stop_requested && settings.stop_requested();
  prepared_->announce(result.totals);
  phase(StepPhase::waiting);
  prepared_->finish_backward();
  phase(StepPhase::optimizer);
  if (settings.learning_rate) rates_.set(*optimizer_, *settings.learning_rate);
  finish_step(*prepared_, precision_, *optimizer_, settings, result);
  phase(StepPhase::end);
  result.totals = prepared_->totals();
  parts_of_stages_->set_waits(waited_ns_, std::move(waits_));
  return result;
}

Tensors PipelineTraining::take(StageMessage message, int number, int micro_batch, Pass& pass) {
  const int from = message == StageMessage::activation ? number - 1 : number + 1;
  if (is_here(from)) {
    auto& kept = message == StageMessage::activation ? pass.activations : pass.gradients;
    return std::move(kept.extract({number, micro_batch}).mapped());
  }
  const std::int64_t begin = monotonic_ns();
  Tensors tensors = link_.receive(message, number, micro_batch);
  const std::int64_t end = monotonic_ns();
  waited_ns_ += end - begin;
  waits_.push_back({.name = message == StageMessage::activation ? "wait for activation" : "wait for gradient",
                    .lane = Lane::communication,
                    .begin_ns = begin,
                    .end_ns = end,
                    .unit = str("stage ", number, ", micro-batch ", micro_batch),
                    .exposed_ns = end - begin,  // a bubble: the rank is idle meanwhile
                    .waited_ns = begin});
  return tensors;
}

void PipelineTraining::act(const Action& action, Pass& pass, const StepSettings& settings) {
  const auto [kind, number, micro_batch] = action;
  const std::string& about = pass.about[static_cast<std::size_t>(micro_batch)];
  switch (kind) {
    case ActionKind::forward:
      forward_stage(number, micro_batch, pass, settings);
      break;
    case ActionKind::backward:
    case ActionKind::backward_input:
      backward_stage(action, pass);
      break;
    case ActionKind::backward_weight: {
      const SlotNote note(computed_, action);
      stages_.at(number)->backward_weight(micro_batch);
      break;
    }
    case ActionKind::receive_activation:
      link_.expect(StageMessage::activation, number, micro_batch, rank_of(number - 1), about);
      break;
    case ActionKind::receive_gradient:
      link_.expect(StageMessage::gradient, number, micro_batch, rank_of(number + 1), about);
      break;
    case ActionKind::send_activation:
      link_.send(StageMessage::activation, number, micro_batch, rank_of(number + 1),
                 pass.activations.extract({number + 1, micro_batch}).mapped(), about);
      break;
    case ActionKind::send_gradient:
      link_.send(StageMessage::gradient, number, micro_batch, rank_of(number - 1),
                 pass.gradients.extract({number - 1, micro_batch}).mapped(), about);
      break;
  }
}

void PipelineTraining::forward_stage(int number, int micro_batch, Pass& pass, const StepSettings& settings) {
  const Batch& batch = pass.micro_batches[static_cast<std::size_t>(micro_batch)];
  // Weights each micro-batch by its share of the window's predictions, as in an accumulated step. For a
  // divided sequence the weight follows SynchronousTraining.
  const int ranks = loss_.counts_predictions() ? prepared_->division().ranks_of_sequence() : 1;
  const std::int64_t own_predictions = ranks * loss_.predictions(batch.targets, batch.samples);
  const bool whole = pass.predictions == 0 || own_predictions == pass.predictions;
  const double share =
      whole ? 1.0 : static_cast<double>(own_predictions) / static_cast<double>(pass.predictions);
  const SampleScope scope({.seed = settings.seed,
                           .step = static_cast<std::uint64_t>(settings.step),
                           .indices = batch.indices,
                           .weight = static_cast<double>(pass.predictions),
                           .loss_scale = share * precision_.loss_scale().value_or(1.0)});
  const auto autocast = precision_.autocast();
  const Tensors inputs = number == 0 ? moved_to(batch.inputs, device_)
                                     : take(StageMessage::activation, number, micro_batch, pass);
  const SlotNote note(computed_, {ActionKind::forward, number, micro_batch});
  Stage& stage = *stages_.at(number);
  Tensors outputs = stage.forward(micro_batch, inputs);
  if (number + 1 < stages()) {
    pass.activations[{number + 1, micro_batch}] =
        is_here(number + 1) ? leaves_of(outputs) : std::move(outputs);
    return;
  }
  if (!at::GradMode::is_enabled()) {
    pass.outputs.push_back(std::move(outputs));
    return;
  }
  const Loss loss = loss_(outputs, moved_to(batch.targets, device_), batch.samples);
  pass.loss += loss.sum.item<double>();
  stage.replace_outputs(micro_batch, {precision_.scale(whole ? loss.mean : loss.mean * share)});
}

void PipelineTraining::backward_stage(const Action& action, Pass& pass) {
  const auto [kind, number, micro_batch] = action;
  const Tensors given =
      number + 1 == stages() ? Tensors() : take(StageMessage::gradient, number, micro_batch, pass);
  const SlotNote note(computed_, action);
  // Recomputation draws the same random numbers, because checkpointed units store the scope.
  Stage& stage = *stages_.at(number);
  Tensors gradients = kind == ActionKind::backward ? stage.backward(micro_batch, given)
                                                   : stage.backward_input(micro_batch, given);
  if (number > 0) pass.gradients[{number - 1, micro_batch}] = std::move(gradients);
}

Tensors PipelineTraining::forward(const Batch& batch) {
  const torch::NoGradGuard no_gradients;
  computed_.clear();
  Pass pass = begin(prepared_->division().own_part(batch));
  for (const Action& action : evaluation_.actions[static_cast<std::size_t>(pipeline_.rank())])
    act(action, pass, {});
  link_.flush();
  Tensors outputs;
  for (std::size_t output = 0; !pass.outputs.empty() && output < pass.outputs.front().size(); ++output) {
    Tensors parts;
    for (const Tensors& each : pass.outputs) parts.push_back(each[output]);
    outputs.push_back(at::cat(parts, 0));
  }
  return prepared_->division().whole_outputs(link_.broadcast(outputs, rank_of(stages() - 1)));
}

std::unique_ptr<Training> PipelineStrategy::prepare(const Recipe& recipe) {
  return std::make_unique<PipelineTraining>(*this, inner(), recipe, options_, division_);
}

std::unique_ptr<Strategy> make_pipeline(const Context& context, std::unique_ptr<Strategy> replicas,
                                        const PipelineOptions& options,
                                        const std::optional<TensorOptions>& division) {
  if (division) check(*division);
  pipeline::stages_per_rank(options.schedule, options.chunks);
  if (options.micro_batches < 1)
    throw UsageError(str("--micro-batches ", options.micro_batches, " must be one or more"));
  return std::make_unique<PipelineStrategy>(context, std::move(replicas), options, division);
}

std::unique_ptr<Strategy> PipelineStrategyFactory::make(const std::string&, const Context& context,
                                                        const PipelineOptions& options) {
  const bool has_mesh = size_along(context.mesh(), "pipeline") > 1;
  const Context meshed = has_mesh ? context : context.mesh({{"pipeline", context.world_size()}});
  const Context data = meshed.within(meshed.group("data"));
  std::unique_ptr<Strategy> replicas;
  if (data.world_size() > 1) {
    replicas = std::make_unique<DdpStrategy>(data, DdpStrategyOptions());
  } else {
    replicas = std::make_unique<OneDevice>(data);
  }
  return make_pipeline(meshed, std::move(replicas), options);
}

}  // namespace rondo
