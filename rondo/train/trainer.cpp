#include "rondo/train/trainer.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <c10/util/Type.h>

#include <algorithm>
#include <map>
#include <typeinfo>
#include <utility>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine/codec_state.h"
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
#include "rondo/train/memory_checkpoint_saver.h"
#include "rondo/train/parts_saver.h"
#include "rondo/train/trainer_state.h"
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

// Prefix of the engine's state among the communication states of a checkpoint.
const std::string kEnginePrefix = "engine/";

// Restores the error feedback of the engine's codec from all ranks' `states` and takes it out of them.
// Returns a warning if the engine starts without it.
std::string restore_engine(const Group& world, std::vector<CommunicationState>& states) {
  std::vector<CommunicationState> engines;
  for (CommunicationState& state : states) {
    engines.push_back(entries_behind(kEnginePrefix, state));
    std::erase_if(state, [](const auto& entry) { return entry.first.starts_with(kEnginePrefix); });
  }
  // A checkpoint of an engine without a codec has no state, so it fits any number of ranks.
  if (engines.empty() || engines.front().empty()) engines.assign(static_cast<std::size_t>(world.size()), {});
  const auto restore = [&](const CommState& own) -> std::string {
    if (ExtendedBackend* const engine = world.extended()) return engine->restore_memory(own);
    return own.empty() ? "" : "is of an engine with a codec, but this engine has none";
  };
  return codec_restart_warning(restore_own_state(engines, world.rank(), world.size(), restore));
}

// Returns the names under which callbacks' states are saved; callbacks with the same name are numbered in
// order.
std::vector<std::string> state_names(const std::vector<std::shared_ptr<Callback>>& callbacks) {
  std::map<std::string, int> seen;
  std::vector<std::string> names;
  for (const auto& callback : callbacks) {
    const int number = ++seen[callback->name()];
    names.push_back(number == 1 ? callback->name() : str(callback->name(), " (", number, ")"));
  }
  return names;
}

// A scope in which a variable has another value.
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

void tell_callbacks(TrainerState& state, const std::function<void(Callback&)>& hook) {
  state.failures.tell(state.strategy->context(), state.callbacks, hook);
}

// Checks this rank's arguments, and returns those that ranks compare; none on one rank.
std::vector<CallArgument> check_fit(const TrainerState& state, const std::shared_ptr<const Dataset>& data,
                                    const FitOptions& options) {
  if (!data) throw UsageError("Trainer::fit: the data set is null");
  for (std::size_t i = 0; i < options.callbacks.size(); ++i) {
    if (!options.callbacks[i]) throw UsageError(str("fit was given a null pointer as callback ", i));
  }
  const torch::optim::Optimizer& own = state.training->optimizer();  // throws if there is none
  if (state.strategy->context().world_size() == 1) return {};
  std::vector<CallArgument> arguments = fit_arguments(*data, options, *state.strategy, state.device);
  std::vector<std::string> metrics;
  for (const Metric& metric : state.metrics) metrics.push_back(metric.name);
  arguments.push_back({.name = "the list of metrics", .value = metrics});
  arguments.push_back({.name = "the optimizer", .value = c10::demangle(typeid(own).name())});
  arguments.push_back({.name = "the learning rate", .value = state.training->learning_rate()});
  arguments.push_back({.name = "the number of steps done before", .value = state.position.step});
  return arguments;
}

// Returns the present states of callbacks. A state that was restored and not yet given to its callback stays
// as it is. Keeps failures.
nlohmann::json states_of_callbacks(TrainerState& state) {
  nlohmann::json states = state.callback_states;
  const std::vector<std::string> names = state_names(state.callbacks);
  auto name = names.begin();
  tell_callbacks(state, [&](Callback& callback) {
    const std::string& key = *name++;
    // A state that was restored after the last fit has not reached its callback yet.
    if (!states.contains(key)) states[key] = callback.state();
  });
  return states;
}

// Calls before_save() of all callbacks and returns their states. Throws CallbackFailed. Collective.
nlohmann::json prepare_callbacks_for_save(Trainer& trainer, TrainerState& state) {
  tell_callbacks(state, [&](Callback& callback) { callback.before_save(trainer); });
  nlohmann::json states = states_of_callbacks(state);
  state.failures.agree(state.strategy->context());
  return states;
}

// Returns the model's tensors of a checkpoint on this rank.
NamedTensors saved_tensors(const TrainerState& state) {
  return rondo::saved_tensors(state.prepared(), *state.training->model().module);
}

// Gathers on rank 0 the contents of a checkpoint besides tensors of the model and the optimizer. `callbacks`:
// their states. Collective.
CheckpointContents rest_of_checkpoint(const TrainerState& state, nlohmann::json callbacks) {
  const Context& context = state.strategy->context();
  CheckpointContents contents;
  contents.random_states = gather(random_state(state.device), context.world(), 0);
  CommunicationState communication = state.prepared().communication_state();
  if (ExtendedBackend* const engine = context.world().extended()) {
    for (auto& [name, tensor] : engine->memory())
      communication.emplace(kEnginePrefix + name, std::move(tensor));
  }
  contents.communication_states = gather_states(communication, context.world());
  contents.values = to_json(TrainingValues{.position = state.position,
                                           .last = state.last,
                                           .sampling = state.sampling,
                                           .schedule = state.schedule,
                                           .precision = state.training->precision().state(),
                                           .callbacks = std::move(callbacks)});
  contents.values["world_size"] = context.world_size();
  contents.values["model"] = {{"name", state.training->model().name},
                              {"config", state.training->model().config}};
  return contents;
}

TrainingState loading_state(TrainerState& training) {
  training.prepared().parts().flush();
  TrainingState state{.model = saved_tensors(training), .optimizers = {}};
  // Master weights are the model; the low-precision weights are rounded copies.
  const MasterWeights* const masters = training.training->precision().master_weights();
  state.own_parameters = own_parameters(training.prepared(), masters);
  state.trust_archives = training.trusts_archives;
  if (masters != nullptr || training.prepared().parts().optimizes_shards())
    state.shards = optimized_shards(training.prepared(), masters);
  return state;
}

// Continues training with weights that were written into its tensors. Collective.
void weights_loaded(TrainerState& state) {
  state.trained_weights.reset();
  state.training->state_loaded(state.position.step);
}

// Activates shown weights, or the training's own again, after they were written into its tensors. Collective.
void weights_shown(TrainerState& state) {
  state.training->precision().weights_changed();
  state.prepared().parts().show_shards();
}

void go_on_with_shown_weights(TrainerState& state) {
  if (state.trained_weights) weights_loaded(state);
}

// Writes into the training's tensors, which takes effect with weights_loaded() or weights_shown().
// Collective.
void assign(TrainerState& state, const WeightsCopy& weights) {
  state.paused = true;
  const torch::NoGradGuard no_gradients;
  const WeightsCopy own = state.training->state().model;
  run_agreed(state.strategy->context(), [&] {
    const bool fits = std::equal(own.begin(), own.end(), weights.begin(), weights.end(),
                                 [](const Shard& a, const Shard& b) {
                                   return a.name == b.name && a.local.sizes() == b.local.sizes();
                                 });
    if (!fits) throw UsageError("the copied weights are of another model, strategy or number of ranks");
    for (std::size_t i = 0; i < own.size(); ++i) at::Tensor(own[i].local).detach().copy_(weights[i].local);
  });
}

// Gathering once for all batches communicates less, but under a memory limit the whole model may not fit.
ForwardPasses prepare_forwards(const TrainerState& state) {
  if (!state.prepared().parts().optimizes_shards()) {
    state.prepared().unshard();
    return ForwardPasses::alone;
  }
  at::Tensor any = at::tensor({replica_memory_tracker().limit() ? 1.0 : 0.0}, at::kDouble);
  all_reduce(any, state.strategy->context().world(), ReduceOp::MAX);
  if (any.item<double>() == 0) {
    state.prepared().unshard();
    return ForwardPasses::alone;
  }
  state.prepared().parts().flush();
  return ForwardPasses::together;
}

}  // namespace

Trainer::Trainer(std::in_place_t, Strategy& strategy, ModelFactory factory, c10::Device device,
                 const PrecisionOptions& precision)
    : state_(new TrainerState{.strategy = StrategyReference(strategy, "Trainer"), .device = device}) {
  const CollectiveCallScope call(CollectiveCall::prepare);
  const MemoryScope scope(MemoryCategory::parameters);
  if (tracks_cpu_allocations()) state_->memory = std::make_shared<MemoryObserver>(replica_memory_tracker());
  Recipe recipe{.model = std::move(factory), .precision = precision, .device = device};
  recipe.on_model = [this](const Model& model) {
    state_->no_matrices = non_matrix_parameters(*model.module);
    if (!state_->memory) return;
    state_->memory->label_parameters(*model.module);
    for (UnitState* unit : units_of(*model.module)) unit->attach(state_->memory);
  };
  state_->training = state_->strategy->prepare(recipe);
}

Trainer::~Trainer() {
  if (!state_->memory) return;
  for (UnitState* unit : units_of(*model().module)) unit->detach(state_->memory);
}

void Trainer::compile(OptimizerFactory optimizer, LossFunction loss, std::vector<Metric> metrics) {
  const MemoryScope scope(MemoryCategory::optimizer_state);
  state_->loss = loss;
  state_->metrics = std::move(metrics);
  state_->training->compile(std::move(optimizer), std::move(loss));
  state_->compiled_rate = state_->training->learning_rate();
  state_->has_optimizer_options = false;
}

void Trainer::compile(OptimizerOptions optimizer, LossFunction loss, std::vector<Metric> metrics) {
  if (optimizer.decayed == Decayed::matrices)
    optimizer.undecayed.insert(optimizer.undecayed.end(), state_->no_matrices.begin(),
                               state_->no_matrices.end());
  compile([optimizer](torch::nn::Module& module) { return make_optimizer(optimizer, module); },
          std::move(loss), std::move(metrics));
  state_->has_optimizer_options = true;
}

FitResult Trainer::fit(const std::shared_ptr<const Dataset>& data, const FitOptions& options) {
  const CollectiveCallScope call(CollectiveCall::fit);
  std::vector<CallArgument> arguments;
  run_agreed(state_->strategy->context(), [&] { arguments = check_fit(*state_, data, options); });
  verify_same_arguments(state_->strategy->context(), "Trainer::fit", arguments);
  go_on_with_shown_weights(*state_);
  state_->callbacks = options.callbacks;
  state_->failures.forget();
  const Within<bool> fitting(state_->fitting, true);  // fit agrees on callbacks' exceptions
  tell_callbacks(*state_, [this](Callback& callback) { callback.before_fit(*this); });
  std::optional<FitLoop> loop;
  run_agreed(state_->strategy->context(), [&] {
    state_->failures.rethrow();
    const std::vector<std::string> names = state_names(state_->callbacks);
    for (std::size_t i = 0; i < state_->callbacks.size(); ++i) {
      const auto& callback = state_->callbacks[i];
      const auto state = state_->callback_states.find(names[i]);
      if (state == state_->callback_states.end()) continue;
      try {
        callback->restore(*state);
      } catch (const nlohmann::json::exception&) {
        throw DataError(str("the checkpoint's state of callback '", callback->name(),
                            "' is not one of it: ", state->dump().substr(0, 80)));
      } catch (const DataError& error) {
        throw DataError(str("the checkpoint's state of callback '", callback->name(), "': ", error.what()));
      }
    }
    for (const std::string& name : names) state_->callback_states.erase(name);
    loop.emplace(*this, *state_, data, options);
  });
  try {
    FitResult result = loop->run();
    if (result.end == FitEnd::preempted) env::note_preemption();
    return result;
  } catch (const std::exception& error) {
    for (const auto& callback : state_->callbacks) callback->on_exception(*this, error);
    throw;
  }
}

StepRecord Trainer::train_on_batch(const Batch& batch, double clip_norm) {
  static_cast<void>(strategy());  // throws if the strategy has ended
  const CollectiveCallScope call(CollectiveCall::train_on_batch);
  optimizer();
  go_on_with_shown_weights(*state_);
  model().module->train();
  const StepResult step = state_->training->train_step(
      {&batch, 1}, {.step = state_->position.step, .learning_rate = {}, .clip_norm = clip_norm});
  StepRecord record;
  record.step = ++state_->position.step;
  record.epoch = state_->position.epoch;
  record.loss = step.totals.loss / static_cast<double>(std::max<std::int64_t>(1, step.totals.predictions));
  record.learning_rate = state_->training->learning_rate();
  record.loss_scale = step.loss_scale;
  record.gradient_norm = step.gradient_norm;
  record.samples = step.totals.samples;
  state_->last.loss = record.loss;
  return record;
}

std::optional<std::map<std::string, double>> evaluate_until_stopped(TrainerState& state, const Dataset& data,
                                                                    const EvaluateOptions& options) {
  const CollectiveCallScope call(CollectiveCall::evaluate);
  state.paused = true;
  const ForwardPasses passes = prepare_forwards(state);
  const auto autocast = state.training->precision().autocast();
  return evaluate_exactly(*state.strategy, *state.training, state.loss, state.metrics, data, options, passes);
}

std::map<std::string, double> Trainer::evaluate(const Dataset& data, const EvaluateOptions& options) {
  return evaluate_until_stopped(*state_, data, options).value_or(std::map<std::string, double>());
}

at::Tensor Trainer::predict(const Dataset& data, const EvaluateOptions& options) {
  Tensors outputs = predict_all(data, options);
  if (outputs.size() != 1)
    throw UsageError(str("predict: the model has ", outputs.size(), " outputs; predict_all gives them all"));
  return std::move(outputs.front());
}

Tensors Trainer::predict_all(const Dataset& data, const EvaluateOptions& options) {
  const CollectiveCallScope call(CollectiveCall::predict);
  state_->paused = true;
  const ForwardPasses passes = prepare_forwards(*state_);
  const auto autocast = state_->training->precision().autocast();
  return outputs_of(*state_->strategy, *state_->training, data, options, passes);
}

void Trainer::save(const std::filesystem::path& root, const SaveOptions& options) {
  const CollectiveCallScope call(CollectiveCall::save);
  if (options.incremental && (options.in_parts || options.in_background))
    throw UsageError("a checkpoint is incremental, or in parts or in the background: rank 0 links files");
  const Within<const SaveOptions*> within(state_->save_options, &options);
  state_->paused = true;
  nlohmann::json callbacks = prepare_callbacks_for_save(*this, *state_);
  if (state_->memory) state_->memory->enter_phase(state_->position.step, "checkpoint", MemoryCategory::other);
  const Context& context = state_->strategy->context();
  const bool in_parts = options.in_parts || options.in_background;
  CheckpointContents contents = rest_of_checkpoint(*state_, std::move(callbacks));
  if (in_parts) {
    state_->parts_saver.save(context,
                             {.root = root,
                              .step = state_->position.step,
                              .keep = options.keep,
                              .in_background = options.in_background},
                             state_->training->state(), saved_tensors(*state_), std::move(contents));
  } else {
    finish_save();
    CheckpointContents tensors =
        collective_contents(state_->training->state(), saved_tensors(*state_), context.world());
    contents.model = std::move(tensors.model);
    contents.optimizer_tensors = std::move(tensors.optimizer_tensors);
    contents.optimizers = std::move(tensors.optimizers);
    save_together(context, root, state_->position.step, std::move(contents), options.keep,
                  options.incremental);
  }
  if (state_->memory) state_->memory->leave_phase();
  tell_callbacks(*state_, [&](Callback& callback) { callback.after_save(*this, root); });
  if (!state_->fitting) state_->failures.agree(context);
}

void save_in_memory(Trainer& trainer, MemoryCheckpointSaver& saver) {
  const CollectiveCallScope call(CollectiveCall::save_in_memory);
  trainer.state_->paused = true;
  nlohmann::json callbacks = prepare_callbacks_for_save(trainer, *trainer.state_);
  const std::int64_t step = trainer.state_->position.step;
  if (trainer.state_->memory) trainer.state_->memory->enter_phase(step, "checkpoint", MemoryCategory::other);
  CheckpointContents rest = rest_of_checkpoint(*trainer.state_, std::move(callbacks));
  saver.save(step, trainer.state_->training->state(), saved_tensors(*trainer.state_), std::move(rest));
  if (trainer.state_->memory) trainer.state_->memory->leave_phase();
}

void Trainer::load_weights(const std::filesystem::path& checkpoint) {
  const CollectiveCallScope call(CollectiveCall::load_weights);
  state_->paused = true;
  TrainingState state = loading_state(*state_);
  run_agreed(state_->strategy->context(), [&] { load_checkpoint(checkpoint, state); });
  ++state_->times_replaced;
  weights_loaded(*state_);
}

WeightsCopy Trainer::weights() {
  const CollectiveCallScope call(CollectiveCall::weights);
  return state_->training->state().model;
}

WeightsCopy Trainer::copy_weights() {
  state_->paused = true;
  WeightsCopy weights = this->weights();
  for (Shard& shard : weights) shard.local = shard.local.detach().clone();
  return weights;
}

void Trainer::put_weights(const WeightsCopy& weights) {
  const CollectiveCallScope call(CollectiveCall::put_weights);
  assign(*state_, weights);
  ++state_->times_replaced;
  weights_loaded(*state_);
}

void Trainer::put_weights(const WeightsCopy& weights, std::map<std::string, double> validation) {
  put_weights(weights);
  state_->last.validation = std::move(validation);
}

void Trainer::show_weights(const WeightsCopy& weights) {
  const CollectiveCallScope call(CollectiveCall::show_weights);
  if (!state_->trained_weights) state_->trained_weights = copy_weights();
  assign(*state_, weights);
  weights_shown(*state_);
}

bool Trainer::show_trained_weights() {
  const CollectiveCallScope call(CollectiveCall::show_weights);
  if (!state_->trained_weights) return false;
  assign(*state_, *state_->trained_weights);
  weights_shown(*state_);
  state_->trained_weights.reset();
  return true;
}

WeightsCopy Trainer::weights_of(const std::filesystem::path& checkpoint) {
  const CollectiveCallScope call(CollectiveCall::weights_of);
  const WeightsCopy before = copy_weights();
  TrainingState state = loading_state(*state_);
  run_agreed(state_->strategy->context(), [&] { load_checkpoint(checkpoint, state); });
  weights_shown(*state_);
  WeightsCopy weights = copy_weights();
  assign(*state_, before);
  weights_shown(*state_);
  return weights;
}

void Trainer::finish_save() {
  const CollectiveCallScope call(CollectiveCall::finish_save);
  state_->parts_saver.finish(state_->strategy->context());
}

void Trainer::restore(const std::filesystem::path& checkpoint) {
  const CollectiveCallScope call(CollectiveCall::restore);
  const Context& context = state_->strategy->context();
  TrainingState state = loading_state(*state_);
  state.optimizers = {{.optimizer = &optimizer()}};
  TrainingValues values;
  state.check = [&values](const nlohmann::json& saved, const std::string& what) {
    values = parse_training_values(saved, what);
  };
  run_agreed(context, [&] {
    const MemoryScope scope(MemoryCategory::optimizer_state);
    GroupOptions options;
    if (state_->has_optimizer_options) options = options_of(optimizer());
    load_checkpoint(checkpoint, state);
    if (state_->has_optimizer_options) set_options(optimizer(), std::move(options));
    state_->position = values.position;
    state_->last = std::move(values.last);
    state_->sampling = std::move(values.sampling);
    state_->schedule = values.schedule;
    state_->callback_states = std::move(values.callbacks);
    state_->training->precision().restore(values.precision);
    // With another world size the ranks' random streams cannot continue; they restart, as at the start of
    // a run.
    const auto rank = static_cast<std::size_t>(context.rank());
    if (static_cast<int>(state.random_states.size()) == context.world_size()) {
      set_random_state(state.random_states[rank], state_->device);
    }
    for (const std::string& lost : {restore_engine(context.world(), state.communication_states),
                                    state_->prepared().restore_communication(state.communication_states)}) {
      if (!lost.empty() && rank == 0) log::warning(checkpoint.string(), ": ", lost);
    }
  });
  ++state_->times_replaced;
  weights_loaded(*state_);
}

void Trainer::hand_over(const std::vector<int>& leaving) {
  const CollectiveCallScope call(CollectiveCall::hand_over);
  state_->training->hand_over(leaving);
}

void Trainer::rebuild(const Context& context) {
  const CollectiveCallScope call(CollectiveCall::rebuild);
  state_->paused = true;
  state_->trained_weights.reset();  // weights of the previous world
  state_->parts_saver.abandon();
  const MemoryScope scope(MemoryCategory::parameters);
  const int source = state_->training->rebuild(context);
  const TrainingValues mine{.position = state_->position,
                            .last = state_->last,
                            .sampling = state_->sampling,
                            .schedule = state_->schedule,
                            .callbacks = states_of_callbacks(*state_)};
  // As in a checkpoint: numbers that JSON lacks become null.
  const nlohmann::json told = broadcast_object(to_json(mine).dump(), context.world(), source);
  const std::string what = str("the training state of rank ", source);
  state_->failures.agree(context);
  TrainingValues values = parse_training_values(parse_json_strict(told.get<std::string>(), what), what);
  state_->position = values.position;
  state_->last = std::move(values.last);
  state_->sampling = std::move(values.sampling);
  state_->schedule = values.schedule;
  state_->callback_states = std::move(values.callbacks);
  if (state_->sampling.empty()) return;
  close_part(state_->sampling, state_->position);
}

const SaveOptions* Trainer::save_options() const { return state_->save_options; }

void Trainer::trust_archives() { state_->trusts_archives = true; }

std::int64_t Trainer::times_replaced() const { return state_->times_replaced; }

Strategy& Trainer::strategy() const { return *state_->strategy; }

const Model& Trainer::model() const { return state_->training->model(); }

torch::optim::Optimizer& Trainer::optimizer() { return state_->training->optimizer(); }

const TrainingPosition& Trainer::position() const { return state_->position; }

const TrainingPrecision& Trainer::precision() const { return state_->training->precision(); }

std::vector<std::uint64_t> Trainer::replica_peak_bytes() const {
  return state_->training->replica_peak_bytes();
}

std::vector<TraceSpan> Trainer::communication_spans() const {
  return state_->prepared().communication_spans();
}

}  // namespace rondo
