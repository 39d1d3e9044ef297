#include "rondo/train/trainer.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <c10/util/Type.h>

#include <algorithm>
#include <map>
#include <typeinfo>
#include <utility>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine_memory.h"
#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/collective_call.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/env/launcher_files.h"
#include "rondo/memory/scope.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/unit_state.h"
#include "rondo/observe/memory_observer.h"
#include "rondo/strategy/own_parameters.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callback_failures.h"
#include "rondo/train/collective_checkpoint.h"
#include "rondo/train/epoch_parts.h"
#include "rondo/train/evaluation.h"
#include "rondo/train/fit_arguments.h"
#include "rondo/train/fit_loop.h"
#include "rondo/train/parts_saver.h"
#include "rondo/train/replica_saver.h"
#include "rondo/train/training_values.h"

namespace rondo {
namespace {

using GroupOptions = std::vector<std::unique_ptr<torch::optim::OptimizerOptions>>;

GroupOptions options_of(torch::optim::Optimizer& optimizer) {
  GroupOptions options;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups())
    options.push_back((group.has_options() ? group.options() : optimizer.defaults()).clone());
  return options;
}

void set_options(torch::optim::Optimizer& optimizer, GroupOptions options) {
  for (std::size_t g = 0; g < options.size(); ++g)
    optimizer.param_groups()[g].set_options(std::move(options[g]));
}

// Of what the engine remembers, among the communication states of a checkpoint.
const std::string kEnginePrefix = "engine/";

// Moves what the ranks' engines remember out of `states`; then no state at all is left of a rank whose
// strategy remembers nothing.
std::vector<CommunicationState> take_engine_memory(std::vector<CommunicationState>& states) {
  std::vector<CommunicationState> engines(states.size());
  bool others_left = false;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    for (auto entry = states[rank].begin(); entry != states[rank].end();) {
      if (!entry->first.starts_with(kEnginePrefix)) {
        ++entry;
        continue;
      }
      engines[rank].emplace(entry->first.substr(kEnginePrefix.size()), entry->second);
      entry = states[rank].erase(entry);
    }
    others_left = others_left || !states[rank].empty();
  }
  if (!others_left) states.clear();
  return engines;
}

// The engine goes on where it was, or begins anew: then the result says so and why.
std::string restore_engine(const Context& context, const std::vector<CommunicationState>& engines) {
  const auto ranks = static_cast<std::size_t>(context.world_size());
  std::string incompatibility;
  if (!engines.empty() && engines.size() != ranks && !engines.front().empty()) {
    incompatibility = str("is of ", engines.size(), " ranks, this run has ", ranks);
  } else {
    const auto own = static_cast<std::size_t>(context.rank());
    incompatibility =
        restore_engine_memory(context.world(), engines.size() == ranks ? engines[own] : CommunicationState());
  }
  if (incompatibility.empty()) return {};
  return str("the engine's codec (error feedback) begins anew: its saved memory ", incompatibility);
}

// The names under which states of callbacks are saved: those of one name are numbered in their order.
std::vector<std::string> state_names(const std::vector<std::shared_ptr<Callback>>& callbacks) {
  std::map<std::string, int> seen;
  std::vector<std::string> names;
  for (const auto& callback : callbacks) {
    const int number = ++seen[callback->name()];
    names.push_back(number == 1 ? callback->name() : str(callback->name(), " (", number, ")"));
  }
  return names;
}

// A variable has another value while it lives.
template <class Value>
class Within {
 public:
  Within(Value& variable, Value value) : variable_(variable), before_(std::exchange(variable, value)) {}
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  ~Within() { variable_ = before_; }

 private:
  Value& variable_;
  Value before_;
};

}  // namespace

Trainer::Trainer(std::in_place_t, Strategy& strategy, ModelFactory factory, c10::Device device,
                 const PrecisionOptions& precision)
    : strategy_(strategy, "Trainer"),
      device_(device),
      parts_saver_(std::make_unique<PartsSaver>()),
      failures_(std::make_unique<CallbackFailures>()),
      metrics_{loss_metric()} {
  const CollectiveCallScope call(CollectiveCall::prepare);
  const MemoryScope scope(MemoryCategory::parameters);
  if (tracks_cpu_allocations()) memory_ = std::make_shared<MemoryObserver>(replica_memory_tracker());
  Recipe recipe{.model = std::move(factory), .precision = precision, .device = device};
  recipe.on_model = [this](const Model& model) {
    no_matrices_ = parameters_that_are_no_matrices(*model.module);
    if (!memory_) return;
    memory_->label_parameters(*model.module);
    for (UnitState* unit : units_of(*model.module)) unit->attach(memory_);
  };
  training_ = strategy_->prepare(recipe);
}

Trainer::~Trainer() {
  if (!memory_) return;
  for (UnitState* unit : units_of(*model().module)) unit->detach(memory_);
}

void Trainer::compile(OptimizerFactory optimizer, LossFunction loss, std::vector<Metric> metrics) {
  const MemoryScope scope(MemoryCategory::optimizer_state);
  loss_ = loss;
  metrics_ = std::move(metrics);
  training_->compile(std::move(optimizer), std::move(loss));
  compiled_rate_ = training_->learning_rate();
  has_optimizer_options_ = false;
}

void Trainer::compile(OptimizerOptions optimizer, LossFunction loss, std::vector<Metric> metrics) {
  if (optimizer.decayed == Decayed::matrices)
    optimizer.undecayed.insert(optimizer.undecayed.end(), no_matrices_.begin(), no_matrices_.end());
  compile([optimizer](torch::nn::Module& module) { return make_optimizer(optimizer, module); },
          std::move(loss), std::move(metrics));
  has_optimizer_options_ = true;
}

FitResult Trainer::fit(const std::shared_ptr<const Dataset>& data, const FitOptions& options) {
  const CollectiveCallScope call(CollectiveCall::fit);
  std::vector<CallArgument> arguments;
  run_agreed(strategy_->context(), [&] { arguments = check_fit(data, options); });
  verify_same_arguments(strategy_->context(), "Trainer::fit", arguments);
  go_on_with_shown_weights();
  callbacks_ = options.callbacks;
  failures_->forget();
  const Within<bool> fitting(fitting_, true);  // it agrees on what callbacks throw
  tell_callbacks([this](Callback& callback) { callback.before_fit(*this); });
  std::optional<FitLoop> loop;
  run_agreed(strategy_->context(), [&] {
    failures_->rethrow();
    const std::vector<std::string> names = state_names(callbacks_);
    for (std::size_t i = 0; i < callbacks_.size(); ++i) {
      const auto& callback = callbacks_[i];
      const auto state = callback_states_.find(names[i]);
      if (state == callback_states_.end()) continue;
      try {
        callback->restore(*state);
      } catch (const nlohmann::json::exception&) {
        throw DataError(str("the checkpoint's state of callback '", callback->name(),
                            "' is not one of it: ", state->dump().substr(0, 80)));
      } catch (const DataError& error) {
        throw DataError(str("the checkpoint's state of callback '", callback->name(), "': ", error.what()));
      }
    }
    for (const std::string& name : names) callback_states_.erase(name);
    loop.emplace(*this, data, options);
  });
  try {
    FitResult result = loop->run();
    if (result.end == FitEnd::preempted) env::note_preemption();
    return result;
  } catch (const std::exception& error) {
    for (const auto& callback : callbacks_) callback->on_exception(*this, error);
    throw;
  }
}

std::vector<CallArgument> Trainer::check_fit(const std::shared_ptr<const Dataset>& data,
                                             const FitOptions& options) {
  if (!data) throw UsageError("Trainer::fit: the data set is null");
  for (std::size_t i = 0; i < options.callbacks.size(); ++i) {
    if (!options.callbacks[i]) throw UsageError(str("fit was given a null pointer as callback ", i));
  }
  const torch::optim::Optimizer& own = optimizer();  // or the error that there is none
  if (strategy_->context().world_size() == 1) return {};
  std::vector<CallArgument> arguments = fit_arguments(*data, options, *strategy_, device_);
  std::vector<std::string> metrics;
  for (const Metric& metric : metrics_) metrics.push_back(metric.name);
  arguments.push_back({.name = "the list of metrics", .value = metrics});
  arguments.push_back({.name = "the optimizer", .value = c10::demangle(typeid(own).name())});
  arguments.push_back({.name = "the learning rate", .value = training_->learning_rate()});
  arguments.push_back({.name = "the number of steps done before", .value = position_.step});
  return arguments;
}

void Trainer::tell_callbacks(const std::function<void(Callback&)>& hook) {
  failures_->tell(strategy_->context(), callbacks_, hook);
}

StepRecord Trainer::train_on_batch(const Batch& batch, double clip_norm) {
  static_cast<void>(strategy());  // throws if it has ended
  const CollectiveCallScope call(CollectiveCall::train_on_batch);
  optimizer();
  go_on_with_shown_weights();
  model().module->train();
  const StepResult step = training_->train_step(
      {&batch, 1}, {.step = position_.step, .learning_rate = {}, .clip_norm = clip_norm});
  StepRecord record;
  record.step = ++position_.step;
  record.epoch = position_.epoch;
  record.loss = step.totals.loss / static_cast<double>(std::max<std::int64_t>(1, step.totals.predictions));
  record.learning_rate = training_->learning_rate();
  record.loss_scale = step.loss_scale;
  record.gradient_norm = step.gradient_norm;
  record.samples = step.totals.samples;
  last_.loss = record.loss;
  return record;
}

std::map<std::string, double> Trainer::evaluate(const Dataset& data, const EvaluateOptions& options) {
  return evaluate_until_stopped(data, options).value_or(std::map<std::string, double>());
}

std::optional<std::map<std::string, double>> Trainer::evaluate_until_stopped(const Dataset& data,
                                                                             const EvaluateOptions& options) {
  const CollectiveCallScope call(CollectiveCall::evaluate);
  paused_ = true;
  const ForwardPasses passes = prepare_forwards();
  const auto autocast = training_->precision().autocast();
  return evaluate_exactly(*strategy_, *training_, loss_, metrics_, data, options, passes);
}

at::Tensor Trainer::predict(const Dataset& data, const EvaluateOptions& options) {
  Tensors outputs = predict_all(data, options);
  if (outputs.size() != 1)
    throw UsageError(str("predict: the model has ", outputs.size(), " outputs; predict_all gives them all"));
  return std::move(outputs.front());
}

Tensors Trainer::predict_all(const Dataset& data, const EvaluateOptions& options) {
  const CollectiveCallScope call(CollectiveCall::predict);
  paused_ = true;
  const ForwardPasses passes = prepare_forwards();
  const auto autocast = training_->precision().autocast();
  return outputs_of(*strategy_, *training_, data, options, passes);
}

// Once for all batches is less to send; but where memory is limited the model may not fit as a whole.
ForwardPasses Trainer::prepare_forwards() {
  if (!prepared().parts().optimizes_shards()) {
    prepared().unshard();
    return ForwardPasses::alone;
  }
  at::Tensor any = at::tensor({replica_memory_tracker().limit() ? 1.0 : 0.0}, at::kDouble);
  all_reduce(any, strategy_->context().world(), ReduceOp::MAX);
  if (any.item<double>() == 0) {
    prepared().unshard();
    return ForwardPasses::alone;
  }
  prepared().parts().flush();
  return ForwardPasses::together;
}

void Trainer::save(const std::filesystem::path& root, const SaveOptions& options) {
  const CollectiveCallScope call(CollectiveCall::save);
  if (options.incremental && (options.in_parts || options.in_background))
    throw UsageError("a checkpoint is incremental, or in parts or in the background: rank 0 links files");
  const Within<const SaveOptions*> within(save_options_, &options);
  paused_ = true;
  nlohmann::json callbacks = prepare_callbacks_for_save();
  if (memory_) memory_->enter_phase(position_.step, "checkpoint", MemoryCategory::other);
  const Context& context = strategy_->context();
  const bool in_parts = options.in_parts || options.in_background;
  CheckpointContents contents = rest_of_checkpoint(std::move(callbacks));
  if (in_parts) {
    parts_saver_->save(
        context,
        {.root = root, .step = position_.step, .keep = options.keep, .in_background = options.in_background},
        training_->state(), saved_tensors(), std::move(contents));
  } else {
    finish_save();
    CheckpointContents tensors = collective_contents(training_->state(), saved_tensors(), context.world());
    contents.model = std::move(tensors.model);
    contents.optimizer_tensors = std::move(tensors.optimizer_tensors);
    contents.optimizers = std::move(tensors.optimizers);
    save_together(context, root, position_.step, std::move(contents), options.keep, options.incremental);
  }
  if (memory_) memory_->leave_phase();
  tell_callbacks([&](Callback& callback) { callback.after_save(*this, root); });
  if (!fitting_) failures_->agree(context);
}

void replicate(Trainer& trainer, ReplicaSaver& replica) {
  const CollectiveCallScope call(CollectiveCall::replicate);
  trainer.paused_ = true;
  nlohmann::json callbacks = trainer.prepare_callbacks_for_save();
  const std::int64_t step = trainer.position_.step;
  if (trainer.memory_) trainer.memory_->enter_phase(step, "checkpoint", MemoryCategory::other);
  CheckpointContents rest = trainer.rest_of_checkpoint(std::move(callbacks));
  replica.save(step, trainer.training_->state(), trainer.saved_tensors(), std::move(rest));
  if (trainer.memory_) trainer.memory_->leave_phase();
}

CheckpointContents Trainer::rest_of_checkpoint(nlohmann::json callbacks) {
  const Context& context = strategy_->context();
  CheckpointContents contents;
  contents.random_states = gather(random_state(device_), context.world(), 0);
  CommunicationState communication = prepared().communication_state();
  for (auto& [name, tensor] : engine_memory(context.world()))
    communication.emplace(kEnginePrefix + name, std::move(tensor));
  contents.communication_states = gather_states(communication, context.world());
  contents.values = to_json(TrainingValues{.position = position_,
                                           .last = last_,
                                           .sampling = sampling_,
                                           .schedule = schedule_,
                                           .precision = training_->precision().state(),
                                           .callbacks = std::move(callbacks)});
  contents.values["world_size"] = context.world_size();
  contents.values["model"] = {{"name", training_->model().name}, {"config", training_->model().config}};
  return contents;
}

nlohmann::json Trainer::prepare_callbacks_for_save() {
  tell_callbacks([this](Callback& callback) { callback.before_save(*this); });
  nlohmann::json states = states_of_callbacks();
  failures_->agree(strategy_->context());
  return states;
}

nlohmann::json Trainer::states_of_callbacks() {
  nlohmann::json states = callback_states_;
  const std::vector<std::string> names = state_names(callbacks_);
  auto name = names.begin();
  tell_callbacks([&](Callback& callback) {
    const std::string& key = *name++;
    // One that was restored after the last fit does not know it yet.
    if (!states.contains(key)) states[key] = callback.state();
  });
  return states;
}

TrainingState Trainer::loading_state() {
  prepared().parts().flush();
  TrainingState state{.model = saved_tensors(), .optimizers = {}};
  // Master weights are the model: the low-precision ones are their rounding.
  const MasterWeights* const masters = training_->precision().master_weights();
  state.own_parameters = own_parameters(prepared(), masters);
  state.trust_archives = trusts_archives_;
  if (masters != nullptr || prepared().parts().optimizes_shards())
    state.shards = optimized_shards(prepared(), masters);
  return state;
}

void Trainer::load_weights(const std::filesystem::path& checkpoint) {
  const CollectiveCallScope call(CollectiveCall::load_weights);
  paused_ = true;
  TrainingState state = loading_state();
  run_agreed(strategy_->context(), [&] { load_checkpoint(checkpoint, state); });
  ++times_replaced_;
  weights_loaded();
}

void Trainer::weights_loaded() {
  trained_weights_.reset();
  training_->state_loaded(position_.step);
}

WeightsCopy Trainer::weights() {
  const CollectiveCallScope call(CollectiveCall::weights);
  return training_->state().model;
}

WeightsCopy Trainer::copy_weights() {
  paused_ = true;
  WeightsCopy weights = this->weights();
  for (Shard& shard : weights) shard.local = shard.local.detach().clone();
  return weights;
}

void Trainer::put_weights(const WeightsCopy& weights) {
  const CollectiveCallScope call(CollectiveCall::put_weights);
  assign(weights);
  ++times_replaced_;
  weights_loaded();
}

void Trainer::put_weights(const WeightsCopy& weights, std::map<std::string, double> validation) {
  put_weights(weights);
  last_.validation = std::move(validation);
}

void Trainer::show_weights(const WeightsCopy& weights) {
  const CollectiveCallScope call(CollectiveCall::show_weights);
  if (!trained_weights_) trained_weights_ = copy_weights();
  assign(weights);
  weights_shown();
}

bool Trainer::show_trained_weights() {
  const CollectiveCallScope call(CollectiveCall::show_weights);
  if (!trained_weights_) return false;
  assign(*trained_weights_);
  weights_shown();
  trained_weights_.reset();
  return true;
}

WeightsCopy Trainer::weights_of(const std::filesystem::path& checkpoint) {
  const CollectiveCallScope call(CollectiveCall::weights_of);
  const WeightsCopy before = copy_weights();
  TrainingState state = loading_state();
  run_agreed(strategy_->context(), [&] { load_checkpoint(checkpoint, state); });
  weights_shown();
  WeightsCopy weights = copy_weights();
  assign(before);
  weights_shown();
  return weights;
}

void Trainer::weights_shown() {
  training_->precision().weights_changed();
  prepared().parts().show_shards();
}

void Trainer::go_on_with_shown_weights() {
  if (trained_weights_) weights_loaded();
}

void Trainer::assign(const WeightsCopy& weights) {
  paused_ = true;
  const torch::NoGradGuard no_gradients;
  const WeightsCopy own = this->weights();
  run_agreed(strategy_->context(), [&] {
    const bool fits = std::equal(own.begin(), own.end(), weights.begin(), weights.end(),
                                 [](const Shard& a, const Shard& b) {
                                   return a.name == b.name && a.local.sizes() == b.local.sizes();
                                 });
    if (!fits) throw UsageError("the copied weights are of another model, strategy or number of ranks");
    for (std::size_t i = 0; i < own.size(); ++i) at::Tensor(own[i].local).detach().copy_(weights[i].local);
  });
}

void Trainer::finish_save() {
  const CollectiveCallScope call(CollectiveCall::finish_save);
  parts_saver_->finish(strategy_->context());
}

void Trainer::restore(const std::filesystem::path& checkpoint) {
  const CollectiveCallScope call(CollectiveCall::restore);
  const Context& context = strategy_->context();
  TrainingState state = loading_state();
  state.optimizers = {{.optimizer = &optimizer()}};
  TrainingValues values;
  state.check = [&values](const nlohmann::json& saved, const std::string& what) {
    values = parse_training_values(saved, what);
  };
  run_agreed(context, [&] {
    const MemoryScope scope(MemoryCategory::optimizer_state);
    GroupOptions options;
    if (has_optimizer_options_) options = options_of(optimizer());
    load_checkpoint(checkpoint, state);
    if (has_optimizer_options_) set_options(optimizer(), std::move(options));
    position_ = values.position;
    last_ = std::move(values.last);
    sampling_ = std::move(values.sampling);
    schedule_ = values.schedule;
    callback_states_ = std::move(values.callbacks);
    training_->precision().restore(values.precision);
    // At another world size the ranks' random streams cannot continue; they start anew, as at the start of a
    // run.
    const auto rank = static_cast<std::size_t>(context.rank());
    if (static_cast<int>(state.random_states.size()) == context.world_size()) {
      set_random_state(state.random_states[rank], device_);
    }
    const std::vector<CommunicationState> engines = take_engine_memory(state.communication_states);
    const std::string lost = prepared().restore_communication(state.communication_states);
    if (!lost.empty() && rank == 0) log::warning(checkpoint.string(), ": ", lost);
    const std::string lost_of_engine = restore_engine(context, engines);
    if (!lost_of_engine.empty() && rank == 0) log::warning(checkpoint.string(), ": ", lost_of_engine);
  });
  ++times_replaced_;
  weights_loaded();
}

void Trainer::hand_over(const std::vector<int>& leaving) {
  const CollectiveCallScope call(CollectiveCall::hand_over);
  training_->hand_over(leaving);
}

void Trainer::rebuild(const Context& context) {
  const CollectiveCallScope call(CollectiveCall::rebuild);
  paused_ = true;
  trained_weights_.reset();  // of the world that was
  parts_saver_->abandon();
  const MemoryScope scope(MemoryCategory::parameters);
  const int source = training_->rebuild(context);
  const TrainingValues mine{.position = position_,
                            .last = last_,
                            .sampling = sampling_,
                            .schedule = schedule_,
                            .callbacks = states_of_callbacks()};
  // As in a checkpoint: numbers that JSON lacks become null.
  const nlohmann::json told = broadcast_object(to_json(mine).dump(), context.world(), source);
  const std::string what = str("what rank ", source, " said of the training");
  failures_->agree(context);
  TrainingValues values = parse_training_values(parse_json_strict(told.get<std::string>(), what), what);
  position_ = values.position;
  last_ = std::move(values.last);
  sampling_ = std::move(values.sampling);
  schedule_ = values.schedule;
  callback_states_ = std::move(values.callbacks);
  if (sampling_.empty()) return;
  close_part(sampling_, position_);
}

NamedTensors Trainer::saved_tensors() { return rondo::saved_tensors(prepared(), *model().module); }

std::vector<TraceSpan> Trainer::communication_spans() const { return prepared().communication_spans(); }

}  // namespace rondo
