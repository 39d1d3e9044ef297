#include "rondo/train/fit_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/data/training_sampler.h"
#include "rondo/observe/memory_observer.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callback_failures.h"
#include "rondo/train/epoch_parts.h"

namespace rondo {
namespace {

// Returns a loader position that exists on this rank, which may have one batch less than others in an epoch.
LoaderPosition position_of(const Loader& loader, std::int64_t epoch, std::int64_t batch) {
  return {epoch, std::min(batch, loader.batches_per_epoch())};
}

// Returns the seed of the order of samples; with AutoShard::off each reader has an order of its own.
std::uint64_t seed_of_order(const FitOptions& options, const Strategy& strategy) {
  if (options.input_sharding != AutoShard::off) return options.seed;
  constexpr std::uint64_t kApart = 0x9e3779b97f4a7c15ULL;
  return options.seed + kApart * static_cast<std::uint64_t>(strategy.input_shard().index);
}

// Returns a schedule for a checkpoint that was saved without one: the number of samples and the global batch
// determine the length of a pass.
ScheduleState schedule_of_earlier_version(const nlohmann::json& sampling, std::int64_t accumulate,
                                          std::int64_t step) {
  const std::int64_t batches = divide_rounding_up(sampling.at("samples").get<std::int64_t>(),
                                                  sampling.at("global_batch").get<std::int64_t>());
  return {.position = {.step = step, .done = static_cast<double>(step)},
          .length = {.steps_per_pass = divide_rounding_up(batches, accumulate)}};
}

// A guard that leaves the memory phase, also when an exception ends training.
struct LeavesMemoryPhase {
  std::shared_ptr<MemoryObserver> memory;
  ~LeavesMemoryPhase() {
    if (memory) memory->leave_phase();
  }
};

}  // namespace

std::int64_t total_steps(const FitOptions& options, std::int64_t samples, int replicas) {
  const std::int64_t batches = divide_rounding_up(divide_rounding_up(samples, replicas), options.batch_size);
  const std::int64_t per_pass = divide_rounding_up(batches, options.accumulate);
  const std::int64_t per_epoch = options.steps_per_epoch > 0 ? options.steps_per_epoch : per_pass;
  const std::int64_t epochs = options.epochs.value_or(options.steps ? INT64_MAX / per_epoch : 1);
  return std::min(epochs * per_epoch, options.steps.value_or(INT64_MAX));
}

FitLoop::FitLoop(Trainer& trainer, TrainerState& state, const std::shared_ptr<const Dataset>& data,
                 const FitOptions& options)
    : trainer_(trainer),
      state_(state),
      data_(data),
      options_(options),
      division_(divide_input(*data, options.input_sharding, trainer.strategy().input_shard().count)),
      counts_tokens_(data->info().unit == "tokens"),
      counting_(counting_modules(*trainer.model().module)) {
  check_options();
  const InputShard shard = trainer_.strategy().input_shard();
  process_batch_ = options_.batch_size * shard.replicas;
  begin_at_initial_epoch();
  adopt_position();
  const TrainingPosition& position = state_.position;
  sampler_ = std::make_shared<TrainingSampler>(
      data_->size(),
      TrainingSampler::Options{.index = division_.readers == 1 ? 0 : shard.index,
                               .count = division_.readers,
                               .shuffle = options_.shuffle,
                               .seed = seed_of_order(options_, trainer_.strategy()),
                               .files = division_.files,
                               .by_file = division_.by_file,
                               .done = parts_done(state_.sampling, "the position in the epoch"),
                               .done_epoch = position.epoch,
                               .order = epoch_order_of(data_)});
  sampler_->set_epoch(position.epoch);
  batches_in_epoch_ = sampler_->batches_per_epoch(process_batch_);
  loader_ = std::make_unique<Loader>(
      data_, sampler_, LoaderOptions{.batch_size = process_batch_, .threads = options_.loader_threads});

  outline_.first_step = position.step;
  outline_.steps_per_epoch = options_.steps_per_epoch > 0 ? options_.steps_per_epoch : steps_per_pass();
  outline_.total_steps = last_step();
  outline_.unit = data_->info().unit;
  outline_.validation_due = options_.validation && state_.last.validation_due;
  outline_.validates = options_.validation != nullptr;
  state_.schedule = continue_schedule(state_.schedule,
                                      {.epochs = options_.epochs,
                                       .steps = options_.steps,
                                       .steps_per_epoch = options_.steps_per_epoch,
                                       .steps_per_pass = steps_per_pass(),
                                       .last_step = outline_.total_steps},
                                      position.step);
  outline_.schedule = state_.schedule->position;
  if (options_.named_schedule && options_.named_schedule->total_steps == 0)
    options_.named_schedule->total_steps = outline_.schedule.length;

  settings_.seed = options_.seed;
  std::vector<std::function<bool()>> requests;
  if (options_.stop_requested) requests.push_back(options_.stop_requested);
  for (const auto& callback : options_.callbacks) {
    if (auto request = callback->stop_request()) requests.push_back(std::move(request));
  }
  if (requests.size() > 1 || (requests.size() == 1 && !options_.stop_requested)) {
    options_.stop_requested = [requests] {
      return std::any_of(requests.begin(), requests.end(), [](const auto& request) { return request(); });
    };
  }
  // A callback's failure on this rank is communicated with the next step's gradients, as a request to stop
  // is.
  settings_.stop_requested = [this] {
    return state_.failures.any() || (options_.stop_requested && options_.stop_requested());
  };
  settings_.on_phase = [this](StepPhase phase) { begin_phase(phase); };
}

int FitLoop::replicas() const { return division_.readers * trainer_.strategy().input_shard().replicas; }

void FitLoop::check_options() const {
  const auto positive = [](const char* what, std::int64_t value) {
    if (value < 1) throw UsageError(str(what, " ", value, " must be one or more"));
  };
  positive("batch size", options_.batch_size);
  positive("accumulated batches", options_.accumulate);
  positive("validation batch size", options_.validation_batch_size);
  const auto not_negative = [](const char* what, std::int64_t value) {
    if (value < 0) throw UsageError(str(what, " ", value, " must be zero or more"));
  };
  not_negative("steps per epoch", options_.steps_per_epoch);
  not_negative("initial epoch", options_.initial_epoch);
  not_negative("initial step", options_.initial_step);
  not_negative("validation batches", options_.validation_batches);
  not_negative("steps between validations", options_.validate_every);
  if (!(options_.clip_norm >= 0))
    throw UsageError(str("clip norm ", options_.clip_norm, " must be zero or more; zero is no clipping"));
  if (options_.schedule && options_.named_schedule)
    throw UsageError("FitOptions has a schedule and a named_schedule; give one of them");
  if (options_.named_schedule) make_schedule(*options_.named_schedule);
  if (options_.epochs) positive("epochs", *options_.epochs);
  if (options_.steps) positive("steps", *options_.steps);
  if (options_.batch_size * replicas() > data_->size()) {
    throw UsageError(str("a batch of ", options_.batch_size, " samples on each of ", replicas(),
                         replicas() == division_.readers ? " ranks is" : " replicas is",
                         " larger than the training data: ", data_->info().source, " has ", data_->size(),
                         " samples for training"));
  }
  if (options_.validation && options_.validation->size() == 0)
    throw UsageError("the validation data has no sample");
}

std::int64_t FitLoop::steps_per_pass() const {
  return total_steps({.epochs = 1, .batch_size = options_.batch_size, .accumulate = options_.accumulate},
                     division_.most_samples * division_.readers, replicas());
}

void FitLoop::begin_at_initial_epoch() {
  TrainingPosition& position = state_.position;
  if (options_.initial_epoch + options_.initial_step == 0 || position.step > 0 || !state_.sampling.empty())
    return;
  const std::int64_t per_pass = steps_per_pass();
  const std::int64_t per_epoch = options_.steps_per_epoch > 0 ? options_.steps_per_epoch : per_pass;
  position.step = options_.initial_epoch * per_epoch + options_.initial_step;
  position.epoch = position.step / per_pass;
  position.batch = position.step % per_pass * options_.accumulate;
}

void FitLoop::adopt_position() {
  const std::int64_t global_batch = options_.batch_size * replicas();
  nlohmann::json now = {{"samples", data_->size()},
                        {"global_batch", global_batch},
                        {"seed", options_.seed},
                        {"shuffle", options_.shuffle},
                        {"sharding", options_.input_sharding == AutoShard::off ? "off" : "data"}};
  if (division_.by_file) now["readers_by_file"] = division_.readers;
  nlohmann::json before = std::exchange(state_.sampling, now);
  TrainingPosition& position = state_.position;
  if (!before.empty() && !state_.schedule)
    state_.schedule = schedule_of_earlier_version(before, options_.accumulate, position.step);
  if (before.empty() || (position.batch == 0 && parts_done(before, "the training").empty())) return;
  for (const char* what : {"samples", "seed", "shuffle", "sharding"}) {
    const nlohmann::json was = before.value(what, nlohmann::json("data"));  // a checkpoint without "sharding"
    if (was != now.at(what)) {
      throw UsageError(str("training stopped in the middle of an epoch with ", what, " ", was.dump(),
                           " and cannot go on there with ", now.at(what).dump(),
                           "; give the same data and sampling options, or resume from the end of an epoch"));
    }
  }
  // The order of samples does not depend on the batch size. The rest of the epoch is divided again in
  // three cases: no batch of the new size begins here, another world has read part of the epoch, or the
  // division is by file.
  const std::int64_t samples = position.batch * before.at("global_batch").get<std::int64_t>();
  const bool by_file = division_.by_file || before.contains("readers_by_file");
  if (!by_file && samples % global_batch == 0 && parts_done(before, "the training").empty()) {
    position.batch = samples / global_batch;
    return;
  }
  close_part(before, position);
  copy_parts(before, state_.sampling);
}

void FitLoop::tell(const std::function<void(Callback&)>& hook) {
  const Context& context = trainer_.strategy().context();
  state_.failures.tell(context, options_.callbacks, hook);
  if (context.world_size() == 1) state_.failures.rethrow();
}

void FitLoop::agree_on_failure() {
  run_agreed(trainer_.strategy().context(), [this] { state_.failures.rethrow(); });
}

FitResult FitLoop::run() {
  const LeavesMemoryPhase leaves{state_.memory};
  trainer_.model().module->train();
  tell([this](Callback& callback) { callback.on_train_begin(trainer_, outline_); });
  agree_on_failure();
  TrainingPosition& position = state_.position;
  result_.step = position.step;
  result_.loss = state_.last.loss;
  result_.validation = state_.last.validation;
  last_elapsed_ = Clock::now();
  catch_up();
  const bool has_ended = position.step >= outline_.total_steps && result_.end == FitEnd::finished;
  if (has_ended || result_.end == FitEnd::early) warn_no_steps_left();
  if (position.step < outline_.total_steps && result_.end == FitEnd::finished)
    seek(position.epoch, position.batch);
  state_.paused = false;
  timer_.restart();

  while (position.step < outline_.total_steps && result_.end == FitEnd::finished) {
    if (state_.memory) state_.memory->trace(tracing() ? options_.trace_memory : nullptr);
    if (!tracing()) {
      trace_.reset();
    } else if (!trace_) {
      trace_ = std::make_unique<StepTrace>(*trainer_.model().module, options_.trace);
    }
    if (trace_) trace_->begin_step();
    set_step();
    memory_phase("data", MemoryCategory::other);
    const std::vector<Batch> window = next_window();
    const StepResult step = train_on(window);
    memory_phase("after the step", MemoryCategory::other);
    finish_step(step);
  }
  trace_.reset();
  agree_on_failure();
  tell([this](Callback& callback) {
    callback.on_train_end(trainer_, result_);
    result_.validation = state_.last.validation;  // figures of weights that the callback has put, if any
  });
  agree_on_failure();
  return result_;
}

void FitLoop::set_step() {
  const std::int64_t step = state_.position.step;
  if (!std::exchange(in_epoch_, true)) {
    const std::int64_t epoch = epoch_of(step);
    // A run that was resumed in the middle of the epoch continues its sums.
    if (state_.last.epoch.epoch != epoch) state_.last.epoch = {.epoch = epoch};
    tell([&](Callback& callback) { callback.on_epoch_begin(trainer_, epoch); });
  }
  tell([&](Callback& callback) { callback.on_step_begin(trainer_, step); });
  double factor = 1;
  bool wants_norm = false;
  for (const auto& callback : options_.callbacks) {
    factor *= callback->learning_rate_factor();
    wants_norm = wants_norm || callback->wants_gradient_norm(step);
  }
  settings_.clip_norm = options_.clip_norm;
  // An infinite limit, so that nothing is clipped.
  if (wants_norm && settings_.clip_norm == 0) settings_.clip_norm = std::numeric_limits<double>::infinity();
  moves_rate_ = moves_rate_ || factor != 1;
  if (options_.schedule) {
    settings_.learning_rate = factor * options_.schedule(step);
  } else if (options_.named_schedule) {
    settings_.learning_rate = factor * scheduled_rate(*options_.named_schedule, outline_.schedule.at(step));
  } else if (moves_rate_) {
    settings_.learning_rate = factor * state_.compiled_rate;
  }
}

std::int64_t FitLoop::epoch_of(std::int64_t step) const {
  return options_.steps_per_epoch > 0 ? step / options_.steps_per_epoch : state_.position.epoch;
}

void FitLoop::end_epoch(const StepRecord& record) {
  const EpochSums sums = std::exchange(state_.last.epoch, {});
  EpochRecord epoch;
  epoch.epoch = record.epoch;
  epoch.step = record.step;
  epoch.loss = sums.loss / std::max(1.0, static_cast<double>(sums.predictions));
  epoch.learning_rate = record.learning_rate;
  epoch.samples = sums.samples;
  epoch.elapsed_s = record.elapsed_s;
  if (state_.last.validated_step == record.step) epoch.validation = state_.last.validation;
  result_.history.push_back(epoch);
  in_epoch_ = false;
  tell([&](Callback& callback) { callback.on_epoch_end(trainer_, epoch); });
}

void FitLoop::catch_up() {
  // A run without steps left, or whose last step was done without validation data.
  const bool unvalidated_end =
      state_.position.step >= outline_.total_steps && state_.last.validated_step != state_.position.step;
  if (options_.validation && (outline_.validation_due || unvalidated_end) && !validate()) {
    result_.end = FitEnd::preempted;
  } else if (state_.position.step < outline_.total_steps && callbacks_want_to_stop()) {
    result_.end = FitEnd::early;
  }
}

void FitLoop::warn_no_steps_left() const {
  if (trainer_.strategy().context().rank() != 0) return;
  const std::int64_t step = state_.position.step;
  if (result_.end == FitEnd::early) {
    log::warning("nothing is trained: ", result_.ended_by, " asks to stop since step ", step,
                 ", before the first step of this call");
    return;
  }
  log::warning("nothing is left to train: the training has reached its end with step ", step, ", ",
               state_.position.epoch,
               " epochs of the data. Numbers of epochs and steps count from the beginning of the training; "
               "request more to continue");
}

bool FitLoop::callbacks_want_to_stop() {
  const auto asks = std::find_if(options_.callbacks.begin(), options_.callbacks.end(),
                                 [](const auto& callback) { return callback->wants_to_stop(); });
  if (asks == options_.callbacks.end()) return false;
  result_.ended_by = (*asks)->name();
  return true;
}

// Counts from the current position, because earlier steps may have had other global batches.
std::int64_t FitLoop::last_step() const {
  const TrainingPosition& position = state_.position;
  std::int64_t last = options_.steps.value_or(INT64_MAX);
  if (options_.steps_per_epoch > 0) {
    if (options_.epochs || !options_.steps)
      last = std::min(last, options_.epochs.value_or(1) * options_.steps_per_epoch);
    return std::max(last, position.step);
  }
  if (options_.epochs || !options_.steps) {
    const std::int64_t epochs = options_.epochs.value_or(1) - position.epoch;
    const std::int64_t rest = divide_rounding_up(batches_in_epoch_ - position.batch, options_.accumulate) +
                              (epochs - 1) * steps_per_pass();
    last = std::min(last, position.step + std::max<std::int64_t>(0, epochs > 0 ? rest : 0));
  }
  return last;
}

void FitLoop::seek(std::int64_t epoch, std::int64_t batch) {
  sampler_->set_epoch(epoch);
  batches_in_epoch_ = sampler_->batches_per_epoch(process_batch_);
  loader_->seek(position_of(*loader_, epoch, batch));
}

std::vector<Batch> FitLoop::next_window() {
  const std::int64_t begin = monotonic_ns();
  const std::int64_t left = batches_in_epoch_ - state_.position.batch;
  std::vector<Batch> window;
  for (std::int64_t i = 0; i < std::min(options_.accumulate, left); ++i) {
    std::optional<Batch> batch = loader_->next();
    window.push_back(batch ? std::move(*batch) : data_->get({}));
  }
  if (trace_) trace_->add_phase("data", begin, monotonic_ns());
  return window;
}

StepResult FitLoop::train_on(const std::vector<Batch>& window) {
  settings_.step = state_.position.step;
  const StepResult result = state_.training->train_step(window, settings_);
  if (trace_) trace_->finish_step(settings_.step + 1, state_.prepared().communication_spans());
  state_.position.batch += static_cast<std::int64_t>(window.size());
  return result;
}

void FitLoop::begin_phase(StepPhase phase) {
  if (!trace_ && !state_.memory) return;
  const std::int64_t now = monotonic_ns();
  if (trace_ && phase_ == StepPhase::forward) trace_->add_phase("forward", phase_begin_ns_, now);
  if (trace_ && phase_ == StepPhase::backward) trace_->add_phase("backward", phase_begin_ns_, now);
  if (trace_ && phase_ == StepPhase::optimizer) trace_->add_phase("optimizer", phase_begin_ns_, now);
  phase_ = phase;
  if (phase == StepPhase::forward) memory_phase("forward", MemoryCategory::activations);
  if (phase == StepPhase::backward) memory_phase("backward", MemoryCategory::temporaries);
  if (phase == StepPhase::optimizer) {
    if (state_.memory) state_.memory->label_gradients(state_.prepared().module());
    memory_phase("optimizer", MemoryCategory::optimizer_state);
  }
  phase_begin_ns_ = monotonic_ns();
}

void FitLoop::finish_step(const StepResult& step) {
  TrainingPosition& position = state_.position;
  const StepTotals& totals = step.totals;
  const CommunicationTimes communication = state_.prepared().communication_times();
  StepRecord record;
  record.times = timer_.finish_step(communication.busy, communication.exposed);
  record.epoch = epoch_of(position.step);
  record.step = ++position.step;
  const double before = 1 - static_cast<double>(sampler_->left()) / static_cast<double>(data_->size());
  record.epochs_done =
      static_cast<double>(position.epoch) + before +
      (1 - before) * static_cast<double>(position.batch) / static_cast<double>(batches_in_epoch_);
  if (options_.steps_per_epoch > 0)
    record.epochs_done = static_cast<double>(record.step) / static_cast<double>(options_.steps_per_epoch);
  const auto predictions = static_cast<double>(totals.predictions);
  record.loss = totals.loss / std::max(1.0, predictions);
  record.learning_rate = state_.training->learning_rate();
  record.samples = totals.samples;
  record.rate =
      (counts_tokens_ ? predictions : static_cast<double>(totals.samples)) / (record.times.step_ms * 1e-3);
  const TimePoint now = Clock::now();
  position.elapsed_s += seconds(now - last_elapsed_);
  last_elapsed_ = now;
  record.elapsed_s = position.elapsed_s;
  record.loss_scale = step.loss_scale;
  record.gradient_norm = step.gradient_norm;
  record.figures = take_figures(counting_);
  if (step.skipped && trainer_.strategy().context().rank() == 0) {
    log::warning("step ", record.step, ": a gradient is infinite or NaN; the step is skipped, loss scale ",
                 *step.loss_scale, " -> ", *state_.training->precision().loss_scale());
  }
  if (!step.skipped && !std::isfinite(record.loss) && std::isfinite(result_.loss.value_or(0))) {
    log::warning("the loss of step ", record.step, " is ", record.loss,
                 "; a lower learning rate or clipping (clip_norm, --max-grad-norm) may help");
  }
  result_.step = record.step;
  result_.loss = record.loss;
  state_.last.loss = record.loss;
  state_.last.validation_due = false;

  EpochSums& sums = state_.last.epoch;
  sums.loss += totals.loss;
  sums.predictions += totals.predictions;
  sums.samples += totals.samples;

  // Advances the epoch before callbacks run, so that a checkpoint names the next batch.
  const bool pass_ended = position.batch >= batches_in_epoch_;
  const bool epoch_ended =
      options_.steps_per_epoch > 0 ? record.step % options_.steps_per_epoch == 0 : pass_ended;
  if (pass_ended) {
    clear_parts(state_.sampling);
    ++position.epoch;
    position.batch = 0;
  }
  bool stop = totals.stop;
  if (stop) agree_on_failure();
  tell([&](Callback& callback) { callback.on_step_end(trainer_, record); });
  const bool last = record.step >= outline_.total_steps;
  const bool interval_ended = options_.validate_every > 0 && record.step % options_.validate_every == 0;
  if (options_.validation && (last || interval_ended || (options_.validate_every == 0 && epoch_ended))) {
    state_.last.validation_due = true;
    stop = stop || !validate();
  }
  if (epoch_ended) end_epoch(record);
  if (pass_ended && !last) seek(position.epoch, 0);
  if (!stop && callbacks_want_to_stop()) {
    result_.end = FitEnd::early;
    // The end of training always validates.
    if (options_.validation && state_.last.validated_step != record.step) stop = !validate();
  }
  if (stop) result_.end = FitEnd::preempted;
  tell([&](Callback& callback) { callback.on_step_complete(trainer_, record); });
  if (!std::exchange(state_.paused, false)) return;
  // Pauses may be long: a request to stop during one takes effect before the next step.
  if (!last && result_.end == FitEnd::finished && stop_on_any(trainer_.strategy(), options_.stop_requested))
    result_.end = FitEnd::preempted;
  timer_.restart();
}

bool FitLoop::validate() {
  // The timeline covers steps only: writing thousands of forward passes would delay a request to stop.
  if (state_.memory) state_.memory->trace(nullptr);
  memory_phase("validation", MemoryCategory::other);
  tell([this](Callback& callback) { callback.on_validation_begin(trainer_); });
  const EvaluateOptions options{
      .batch_size = options_.validation_batch_size,
      .batches = options_.validation_batches,
      .stop_requested = options_.stop_requested,
      .progress = [this](std::int64_t batches, std::int64_t of) {
        tell([&](Callback& callback) { callback.on_validation_progress(trainer_, batches, of); });
      }};
  std::optional<std::map<std::string, double>> values =
      evaluate_until_stopped(state_, *options_.validation, options);
  if (!values) return false;
  ValidationRecord record;
  record.values = std::move(*values);
  record.step = state_.position.step;
  const bool between_passes = options_.steps_per_epoch == 0 && state_.position.batch == 0;
  record.epoch = std::max<std::int64_t>(0, epoch_of(record.step - 1) - (between_passes ? 1 : 0));
  record.elapsed_s = state_.position.elapsed_s + seconds(Clock::now() - last_elapsed_);
  state_.last.validated_step = record.step;
  state_.last.validation_due = false;
  state_.last.validation = record.values;
  result_.validation = record.values;
  tell([&](Callback& callback) { callback.on_validation_end(trainer_, record); });
  return true;
}

bool FitLoop::tracing() const {
  const std::int64_t done = state_.position.step - outline_.first_step - options_.traced_after;
  return options_.trace && done >= 0 && done < options_.traced_steps;
}

void FitLoop::memory_phase(const char* phase, MemoryCategory category) {
  if (state_.memory) state_.memory->enter_phase(state_.position.step + 1, phase, category);
}

}  // namespace rondo
