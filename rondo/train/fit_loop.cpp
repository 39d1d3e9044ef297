#include "rondo/train/fit_loop.h"

#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/sample_scope.h"
#include "rondo/observe/memory_observer.h"

namespace rondo {
namespace {

std::int64_t divide_rounding_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

// Keeps the loader at a place that exists on this rank: it may have a batch less than others at the end of an
// epoch.
LoaderPosition position_of(const Loader& loader, std::int64_t epoch, std::int64_t batch) {
  return {epoch, std::min(batch, loader.batches_per_epoch())};
}

// Also when training ends by an exception.
struct LeavesMemoryPhase {
  std::shared_ptr<MemoryObserver> memory;
  ~LeavesMemoryPhase() {
    if (memory) memory->leave_phase();
  }
};

}  // namespace

std::int64_t total_steps(const FitOptions& options, std::int64_t samples, int ranks) {
  const std::int64_t batches = divide_rounding_up(divide_rounding_up(samples, ranks), options.batch_size);
  const std::int64_t per_epoch = divide_rounding_up(batches, options.accumulate);
  const std::int64_t epochs = options.epochs.value_or(options.steps ? INT64_MAX / per_epoch : 1);
  return std::min(epochs * per_epoch, options.steps.value_or(INT64_MAX));
}

FitLoop::FitLoop(Trainer& trainer, const std::shared_ptr<const Dataset>& data, const FitOptions& options)
    : trainer_(trainer), data_(data), options_(options), counts_tokens_(data->info().unit == "tokens") {
  check_options();
  const InputShard shard = trainer_.strategy_.input_shard();
  auto sampler = std::make_shared<TrainingSampler>(
      data_->size(),
      TrainingSampler::Options{
          .index = shard.index, .count = shard.count, .shuffle = options_.shuffle, .seed = options_.seed});
  batches_per_epoch_ = sampler->batches_per_epoch(options_.batch_size);
  loader_ = std::make_unique<Loader>(
      data_, std::move(sampler),
      LoaderOptions{.batch_size = options_.batch_size, .workers = options_.loader_workers});

  adopt_position();
  plan_.first_step = trainer_.position_.step;
  plan_.steps_per_epoch = divide_rounding_up(batches_per_epoch_, options_.accumulate);
  plan_.total_steps = total_steps(options_, data_->size(), shard.count);
  plan_.unit = data_->info().unit;
}

void FitLoop::check_options() const {
  const auto positive = [](const char* what, std::int64_t value) {
    if (value < 1) throw UsageError(str(what, " ", value, " must be one or more"));
  };
  positive("batch size", options_.batch_size);
  positive("accumulated batches", options_.accumulate);
  positive("validation batch size", options_.validation_batch_size);
  if (options_.epochs) positive("epochs", *options_.epochs);
  if (options_.steps) positive("steps", *options_.steps);
  const std::int64_t ranks = trainer_.strategy_.input_shard().count;
  if (options_.batch_size * ranks > data_->size()) {
    throw UsageError(str("a batch of ", options_.batch_size, " samples on each of ", ranks,
                         " ranks is larger than the ", "training data: ", data_->info().source, " has ",
                         data_->size(), " samples for training"));
  }
  if (options_.validation && options_.validation->size() == 0)
    throw UsageError("the validation data has no sample");
}

void FitLoop::adopt_position() {
  const std::int64_t global_batch = options_.batch_size * trainer_.strategy_.input_shard().count;
  const nlohmann::json now = {{"samples", data_->size()},
                              {"global_batch", global_batch},
                              {"seed", options_.seed},
                              {"shuffle", options_.shuffle}};
  const nlohmann::json before = std::exchange(trainer_.sampling_, now);
  TrainingPosition& position = trainer_.position_;
  if (position.batch == 0 || before.empty()) return;
  for (const char* what : {"samples", "seed", "shuffle"}) {
    if (before.at(what) != now.at(what)) {
      throw UsageError(str("training stopped in the middle of an epoch with ", what, " ",
                           before.at(what).dump(), " and cannot go on there with ", now.at(what).dump(),
                           "; give the same data and sampling options, or resume from the end of an epoch"));
    }
  }
  // Samples go in the same order whatever the batch size, so another one only has to start at a batch's edge.
  const std::int64_t samples_done = position.batch * before.at("global_batch").get<std::int64_t>();
  if (samples_done % global_batch != 0) {
    throw UsageError(str("training stopped after ", samples_done,
                         " samples of an epoch, which a global batch of ", global_batch,
                         " samples does not divide; resume with a global batch of ",
                         before.at("global_batch").dump()));
  }
  position.batch = samples_done / global_batch;
}

FitResult FitLoop::run() {
  const LeavesMemoryPhase leaves{trainer_.memory_};
  trainer_.model_.module->train();
  for (const auto& callback : options_.callbacks) callback->on_train_begin(trainer_, plan_);
  TrainingPosition& position = trainer_.position_;
  result_.step = position.step;
  last_elapsed_ = Clock::now();
  if (position.step < plan_.total_steps) seek(position.epoch, position.batch);
  timer_.restart();

  while (position.step < plan_.total_steps && result_.end == FitEnd::finished) {
    if (trainer_.memory_) trainer_.memory_->trace(tracing() ? options_.trace_memory : nullptr);
    if (!tracing()) {
      trace_.reset();
    } else if (!trace_) {
      trace_ = std::make_unique<StepTrace>(*trainer_.model_.module, options_.trace);
    }
    if (trace_) trace_->begin_step();
    memory_phase("data", MemoryCategory::other);
    std::vector<Batch> window = next_window();
    const StepSums sums = train_on(window);
    memory_phase("after the step", MemoryCategory::other);
    finish_step(sums);
  }
  trace_.reset();
  if (options_.validation && validated_step_ != position.step && result_.end != FitEnd::preempted) validate();
  for (const auto& callback : options_.callbacks) callback->on_train_end(trainer_, result_);
  return result_;
}

void FitLoop::seek(std::int64_t epoch, std::int64_t batch) {
  loader_->seek(position_of(*loader_, epoch, batch));
}

std::vector<Batch> FitLoop::next_window() {
  const std::int64_t begin = monotonic_ns();
  const std::int64_t left = batches_per_epoch_ - trainer_.position_.batch;
  std::vector<Batch> window;
  for (std::int64_t i = 0; i < std::min(options_.accumulate, left); ++i) {
    std::optional<Batch> batch = loader_->next();
    window.push_back(batch ? std::move(*batch) : data_->get({}));
  }
  if (trace_) trace_->add_phase("data", begin, monotonic_ns());
  return window;
}

FitLoop::StepSums FitLoop::train_on(std::vector<Batch>& window) {
  torch::optim::Optimizer& optimizer = *trainer_.optimizer_;
  TrainingPrecision& precision = trainer_.precision_;
  std::int64_t window_predictions = 0;
  for (const Batch& batch : window) window_predictions += count_predictions(batch.target);
  optimizer.zero_grad();

  StepSums sums;
  std::int64_t mark = monotonic_ns();
  const auto traced = [&](const char* name) {
    const std::int64_t now = monotonic_ns();
    if (trace_) trace_->add_phase(name, mark, now);
    mark = now;
  };
  for (std::size_t i = 0; i < window.size(); ++i) {
    const Batch& batch = window[i];
    trainer_.prepared_->begin_step(
        {.samples = window_predictions,
         .synchronise = i + 1 == window.size(),
         .gradients_are_read = options_.clip_norm > 0 || precision.reads_gradients()});
    const SampleScope scope({.seed = options_.seed,
                             .step = static_cast<std::uint64_t>(trainer_.position_.step),
                             .indices = batch.indices,
                             .weight = static_cast<double>(window_predictions)});
    memory_phase("forward", MemoryCategory::activations);
    const at::Tensor target = batch.target.to(trainer_.device_);
    auto autocast = precision.autocast();
    Loss loss = trainer_.loss_(trainer_.model_.forward(batch.input.to(trainer_.device_)), target);
    autocast.reset();
    traced("forward");
    memory_phase("backward", MemoryCategory::temporaries);
    // The gradient of the window is the mean over its predictions, so each batch counts by its share of them.
    const bool whole = window.size() == 1 || window_predictions == 0;
    const double share =
        whole ? 1.0 : static_cast<double>(loss.predictions) / static_cast<double>(window_predictions);
    precision.scale(whole ? loss.mean : loss.mean * share).backward();
    traced("backward");
    sums.loss += loss.sum.item<double>();
    sums.predictions += static_cast<double>(loss.predictions);
    sums.samples += static_cast<double>(batch.samples);
  }
  trainer_.prepared_->finish_backward();
  mark = monotonic_ns();
  if (trainer_.memory_) trainer_.memory_->label_gradients(trainer_.prepared_->module());
  if (options_.schedule) set_learning_rate(optimizer, options_.schedule(trainer_.position_.step));
  memory_phase("optimizer", MemoryCategory::optimizer_state);
  take_step(optimizer);
  traced("optimizer");
  if (trace_) trace_->finish_step(trainer_.position_.step + 1, trainer_.prepared_->communication_spans());
  sums.stop = options_.stop_requested && options_.stop_requested();
  trainer_.position_.batch += static_cast<std::int64_t>(window.size());
  return sum_over_ranks(sums);
}

void FitLoop::take_step(torch::optim::Optimizer& optimizer) {
  TrainingPrecision& precision = trainer_.precision_;
  loss_scale_ = precision.loss_scale();
  const bool finite = precision.finish_gradients(optimizer);
  if (options_.clip_norm > 0 && finite) {
    if (MasterWeights* masters = precision.masters()) {
      torch::nn::utils::clip_grad_norm_(distinct_parameters(masters->module()), options_.clip_norm);
    } else {
      trainer_.prepared_->clip_gradients(options_.clip_norm);
    }
  }
  skipped_ = !precision.step(optimizer, [&] { trainer_.prepared_->step(optimizer); });
  if (!skipped_ || trainer_.strategy_.context().rank() != 0) return;
  log::warning("step ", trainer_.position_.step + 1,
               ": a gradient is infinite or NaN; the weights stay, loss scale ", *loss_scale_, " -> ",
               *precision.loss_scale());
}

FitLoop::StepSums FitLoop::sum_over_ranks(const StepSums& local) const {
  if (trainer_.strategy_.num_replicas_in_sync() == 1) return local;
  // The request to stop travels with the loss, so all ranks stop after the same step.
  const at::Tensor sums = trainer_.strategy_.reduce(
      ReduceOp::SUM,
      at::tensor({local.loss, local.predictions, local.samples, local.stop ? 1.0 : 0.0}, at::kDouble));
  const double* values = sums.data_ptr<double>();
  return {values[0], values[1], values[2], values[3] > 0};
}

void FitLoop::finish_step(const StepSums& sums) {
  TrainingPosition& position = trainer_.position_;
  const CommunicationTimes communication = trainer_.prepared_->communication_times();
  StepRecord record;
  record.times = timer_.finish_step(communication.busy, communication.exposed);
  record.step = ++position.step;
  record.epoch = position.epoch;
  record.epochs_done = static_cast<double>(position.epoch) +
                       static_cast<double>(position.batch) / static_cast<double>(batches_per_epoch_);
  record.loss = sums.loss / std::max(1.0, sums.predictions);
  record.learning_rate = trainer_.optimizer_->param_groups().front().options().get_lr();
  record.samples = static_cast<std::int64_t>(sums.samples);
  record.rate = (counts_tokens_ ? sums.predictions : sums.samples) / (record.times.step_ms * 1e-3);
  const TimePoint now = Clock::now();
  position.elapsed_s += seconds(now - last_elapsed_);
  last_elapsed_ = now;
  record.elapsed_s = position.elapsed_s;
  record.loss_scale = loss_scale_;
  if (!skipped_ && !std::isfinite(record.loss) && std::isfinite(result_.loss)) {
    log::warning("the loss of step ", record.step, " is ", record.loss,
                 "; a lower learning rate or --clip-norm may help");
  }
  result_.step = record.step;
  result_.loss = record.loss;

  // The epoch turns before callbacks run, so that a checkpoint names the next batch to come.
  const std::int64_t finished_epoch = position.epoch;
  const bool epoch_ended = position.batch >= batches_per_epoch_;
  if (epoch_ended) {
    ++position.epoch;
    position.batch = 0;
  }
  for (const auto& callback : options_.callbacks) callback->on_step_end(trainer_, record);
  const bool interval_ended = options_.validate_every > 0 && record.step % options_.validate_every == 0;
  if (options_.validation && (interval_ended || (options_.validate_every == 0 && epoch_ended))) validate();
  if (epoch_ended) {
    for (const auto& callback : options_.callbacks) callback->on_epoch_end(trainer_, finished_epoch);
    if (record.step < plan_.total_steps) seek(position.epoch, 0);
  }
  if (sums.stop) {
    result_.end = FitEnd::preempted;
  } else if (std::any_of(options_.callbacks.begin(), options_.callbacks.end(),
                         [](const auto& callback) { return callback->wants_to_stop(); })) {
    result_.end = FitEnd::early;
  }
  if (std::exchange(trainer_.paused_, false)) timer_.restart();
}

void FitLoop::validate() {
  memory_phase("validation", MemoryCategory::other);
  ValidationRecord record;
  record.values = trainer_.evaluate(*options_.validation, {.batch_size = options_.validation_batch_size});
  record.step = trainer_.position_.step;
  record.epoch = trainer_.position_.batch == 0 ? std::max<std::int64_t>(0, trainer_.position_.epoch - 1)
                                               : trainer_.position_.epoch;
  record.elapsed_s = trainer_.position_.elapsed_s + seconds(Clock::now() - last_elapsed_);
  validated_step_ = record.step;
  result_.validation = record.values;
  for (const auto& callback : options_.callbacks) callback->on_validation_end(trainer_, record);
}

bool FitLoop::tracing() const {
  return options_.trace && trainer_.position_.step - plan_.first_step < options_.traced_steps;
}

void FitLoop::memory_phase(const char* phase, MemoryCategory category) {
  if (trainer_.memory_) trainer_.memory_->enter_phase(trainer_.position_.step + 1, phase, category);
}

}  // namespace rondo
