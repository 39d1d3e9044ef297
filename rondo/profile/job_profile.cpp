#include "rondo/profile/job_profile.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/base/arithmetic.h"
#include "rondo/base/bytes.h"
#include "rondo/base/text.h"
#include "rondo/data/dataset.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/memory/tracker.h"
#include "rondo/models/model.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/optimizers/optimizer.h"
#include "rondo/nn/unit_state.h"
#include "rondo/observe/unit_profiler.h"
#include "rondo/parallel/gradients/transfer.h"
#include "rondo/parallel/sharded/sharded_strategy.h"
#include "rondo/profile/link_profile.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

struct StepOverheadOptions {
  OptimizerOptions optimizer = {};
  LossFunction loss = cross_entropy;  // minimised loss
  Bytes in_flight_limit = MiB(16);    // limit of sharded training's bytes in flight
  bool find_unused_parameters = false;
  int steps = 12;
};

// A data set that repeats the samples of one batch.
class RepeatedBatch final : public Dataset {
 public:
  RepeatedBatch(Batch batch, std::int64_t size) : batch_(std::move(batch)), size_(size) {
    info_.kind = info_.source = "profile";
  }
  std::int64_t size() const override { return size_; }
  Batch get(std::span<const std::int64_t> indices) const override {
    check_indices(indices, size_);
    const at::Tensor rows =
        at::tensor(at::IntArrayRef(indices.data(), indices.size()), at::kLong).remainder(batch_.samples);
    Batch repeated{.inputs = batch_.inputs,
                   .targets = batch_.targets,
                   .samples = static_cast<std::int64_t>(indices.size())};
    for (std::vector<at::Tensor>* const tensors : {&repeated.inputs, &repeated.targets}) {
      for (at::Tensor& tensor : *tensors) tensor = tensor.index_select(0, rows);
    }
    return repeated;
  }
  const DatasetInfo& info() const override { return info_; }

 private:
  Batch batch_;
  std::int64_t size_;
  DatasetInfo info_;
};

// Records the time of each step outside its units and outside waits for segments.
class OutsideUnits final : public Callback {
 public:
  std::string name() const override { return "outside_units"; }

  void on_train_begin(Trainer& trainer, const FitOutline&) override {
    // Disjoint units, as in the profile.
    for (const ModelUnit& unit : partition_into_units(*trainer.model().module)) {
      if (unit.state == nullptr) continue;
      unit.state->attach(spans_);
      units_.push_back(unit.state);
    }
  }

  void on_step_end(Trainer& trainer, const StepRecord& record) override {
    double rest = record.times.step_ms * 1e-3;
    for (const TraceSpan& span : spans_->take()) {
      // Recomputation is inside a backward pass.
      if (span.name != "recompute") rest -= static_cast<double>(span.end_ns - span.begin_ns) * 1e-9;
    }
    for (const TraceSpan& span : trainer.communication_spans())
      rest -= static_cast<double>(span.exposed_ns.value_or(0)) * 1e-9;
    steps_.push_back(rest);
  }

  void on_train_end(Trainer&, const FitResult&) override {
    for (UnitState* unit : units_) unit->detach(spans_);
  }

  const std::vector<double>& steps() const { return steps_; }

 private:
  std::shared_ptr<UnitSpans> spans_ = std::make_shared<UnitSpans>();
  std::vector<UnitState*> units_;
  std::vector<double> steps_;
};

// Trains `model` for some steps as zero2 on all ranks, as a run would, on a repeated batch. Returns the
// seconds of a step outside units and outside waits for segments: compute outside of all units, this rank's
// part of the update, and overhead that no unit's profile has (copies into buckets, hooks of units, the
// reduction of the loss). Takes the median step of the rank that waits least for others. Collective; returns
// the same on all ranks. Changes the model's weights.
double seconds_outside_units(const Context& context, Model model, const Batch& batch,
                             const StepOverheadOptions& options) {
  constexpr int kWarmUp = 3;  // steps that touch memory for the first time
  const int steps = kWarmUp + std::max(options.steps, 1);
  ShardedOptions strategy_options;
  strategy_options.in_flight_bytes = options.in_flight_limit;
  strategy_options.find_unused_parameters = options.find_unused_parameters;
  ShardedStrategy strategy("zero2", context, strategy_options);
  Trainer trainer(strategy, std::move(model));
  trainer.compile([&](torch::nn::Module& module) { return make_optimizer(options.optimizer, module); },
                  options.loss);
  const auto outside = std::make_shared<OutsideUnits>();
  const auto data = std::make_shared<RepeatedBatch>(batch, batch.samples * (steps + 1));
  // Ranks have different batches, so data is not compared between them.
  trainer.fit(data, {.steps = steps,
                     .batch_size = batch.samples,
                     .shuffle = false,
                     .input_sharding = AutoShard::off,
                     .callbacks = {outside}});
  // A rank that finishes early waits for the others at the end of the step; the last one does not.
  at::Tensor message = at::tensor(outside->steps(), at::kDouble);
  all_reduce(message, context.world(), ReduceOp::MIN);
  const double* least = message.data_ptr<double>();
  return median({least + kWarmUp, least + message.numel()});
}

constexpr int kMostMeasurements = 3;

// Lists all units' times, so that ranks agree on them in one message.
std::vector<double*> times_of(cost::Profile& profile) {
  std::vector<double*> times;
  for (cost::UnitProfile& unit : profile.units) {
    for (double* time : {&unit.forward_s, &unit.backward_s, &unit.recompute_s, &unit.optimizer_s})
      times.push_back(time);
  }
  return times;
}

std::vector<std::uint64_t*> bytes_of(cost::Profile& profile) {
  std::vector<std::uint64_t*> bytes = {&profile.base_bytes, &profile.engine_bytes,
                                       &profile.engine_rank_bytes};
  for (cost::UnitProfile& unit : profile.units) {
    for (std::uint64_t* value : {&unit.optimizer_bytes, &unit.activation_bytes,
                                 &unit.checkpointed_activation_bytes, &unit.forward_workspace_bytes})
      bytes.push_back(value);
  }
  return bytes;
}

std::vector<std::int64_t*> signed_bytes_of(cost::Profile& profile) {
  std::vector<std::int64_t*> bytes;
  for (cost::UnitProfile& unit : profile.units) {
    bytes.push_back(&unit.backward_workspace_bytes);
    if (unit.checkpointed_backward_workspace_bytes)
      bytes.push_back(&*unit.checkpointed_backward_workspace_bytes);
  }
  return bytes;
}

// Agrees on the slowest rank's times and the largest rank's bytes, since ranks wait for each other in every
// step.
void agree(cost::Profile& profile, const Group& group) {
  const std::vector<double*> times = times_of(profile);
  const std::vector<std::uint64_t*> bytes = bytes_of(profile);
  const std::vector<std::int64_t*> signed_bytes = signed_bytes_of(profile);
  std::vector<double> figures;
  for (const double* time : times) figures.push_back(*time);
  for (const std::uint64_t* value : bytes) figures.push_back(static_cast<double>(*value));
  for (const std::int64_t* value : signed_bytes) figures.push_back(static_cast<double>(*value));
  at::Tensor message = at::tensor(figures, at::kDouble);
  all_reduce(message, group, ReduceOp::MAX);
  const double* agreed = message.data_ptr<double>();
  for (double* time : times) *time = *agreed++;
  for (std::uint64_t* value : bytes) *value = static_cast<std::uint64_t>(*agreed++);
  for (std::int64_t* value : signed_bytes) *value = static_cast<std::int64_t>(*agreed++);
}

// Scales the units' times to a whole pass of the slowest rank. A median per unit excludes occasional
// disturbances. Among many units one is nearly always disturbed, and a step ends with the slowest rank. Units
// keep the proportions of their medians.
void fit_to_passes(cost::Profile& profile, const std::vector<double>& passes, const Group& group) {
  at::Tensor message = at::tensor(passes, at::kDouble);
  all_reduce(message, group, ReduceOp::MAX);
  const double* slowest = message.data_ptr<double>();
  cost::fit_to_pass(profile, median({slowest, slowest + message.numel()}));
}

// Agrees on the slowest rank's times of every layer; bytes are equal on all ranks.
void agree_on_layers(cost::Profile& profile, const Group& group) {
  std::vector<double*> times;
  for (cost::LayerProfile& layer : profile.layers) {
    for (cost::LayerPart& part : layer.parts) {
      for (cost::LayerPasses& of : part.passes) {
        for (double* time : {&of.forward_s, &of.backward_s, &of.backward_input_s, &of.backward_weight_s})
          times.push_back(time);
      }
    }
  }
  if (times.empty()) return;
  std::vector<double> figures;
  for (const double* time : times) figures.push_back(*time);
  at::Tensor message = at::tensor(figures, at::kDouble);
  all_reduce(message, group, ReduceOp::MAX);
  const double* agreed = message.data_ptr<double>();
  for (double* time : times) *time = *agreed++;
}

// Measures the engine's memory, independent of the model, and its part for a group of one rank.
void add_engine_bytes(cost::Profile& profile, const Context& context) {
  const auto engine = [] { return replica_memory_tracker().usage()[MemoryCategory::communication]; };
  profile.engine_bytes = engine();
  profile.base_bytes += profile.engine_bytes;
  if (context.world_size() == 1) return;
  const Context alone = context.within(context.world());
  for (int rank = 0; rank < context.world_size(); ++rank) alone.new_group({rank});
  const std::uint64_t of_one = engine() - profile.engine_bytes;
  profile.engine_rank_bytes = (profile.engine_bytes - std::min(profile.engine_bytes, of_one)) /
                              static_cast<std::uint64_t>(context.world_size() - 1);
}

// Returns the time of a real step beyond the units' passes and the rest of the profile.
double overhead_of(const Context& context, const cost::Profile& profile, ModelProfiler& profiler,
                   const Batch& batch, const JobProfileOptions& options) {
  const StepOverheadOptions step{.optimizer = options.model.optimizer,
                                 .loss = options.model.loss,
                                 .in_flight_limit = options.link.in_flight_limit,
                                 .find_unused_parameters = profiler.has_unused_parameters(),
                                 .steps = options.steps};
  const double outside = seconds_outside_units(context, profiler.take_model(), batch, step);
  double known = 0;
  for (const cost::UnitProfile& unit : profile.units) {
    known += unit.optimizer_s / context.world_size();
    if (unit.name == kRootUnit) known += unit.forward_s + unit.backward_s;
  }
  return std::max(0.0, outside - known);
}

}  // namespace

cost::Profile profile_job(const Context& context, Model model, const Batch& batch,
                          const JobProfileOptions& options, std::string made_for) {
  const std::uint64_t bucket_bytes = bytes_beside_gradients(tensors_of(*model.module).parameters);
  LinkProfileOptions of_link = options.link;
  of_link.device = model.module->parameters().front().device();
  ModelProfiler profiler(std::move(model), batch, options.model);
  // All ranks compute at the same time, as in training. Measures again while a rank's times are not steady.
  double spread = 0;
  for (int measured = 0; measured < kMostMeasurements; ++measured) {
    barrier(context.world());
    options.on_stage(measured == 0 ? "units" : str("units, measurement ", measured + 1));
    profiler.measure();
    spread = over_ranks(profiler.spread(), context.world(), ReduceOp::MAX);
    if (spread <= cost::kSteadySpread) break;
  }
  cost::Profile profile = profiler.profile();
  add_engine_bytes(profile, context);
  profile.made_for = std::move(made_for);
  profile.spread = spread;
  agree(profile, context.world());
  fit_to_passes(profile, profiler.passes(), context.world());
  if (options.make_model) {
    barrier(context.world());
    options.on_stage("layers");
    profile.layers =
        profile_layers(options.make_model, batch, options.model.loss, profile.units, options.layers);
    agree_on_layers(profile, context.world());
    fit_to_units(profile);
  }
  options.on_stage("link");
  profile.link = profile_link(context, of_link, [&] { profiler.pass(); });
  if (profile.link.parameters_in_place) profile.base_bytes += bucket_bytes;
  if (travels_in_background(context)) {
    options.on_stage("steps");
    profile.overhead_s = overhead_of(context, profile, profiler, batch, options);
  }
  return profile;
}

std::string describe_job(const Model& model, const Batch& batch, const std::string& optimizer,
                         const std::string& loss, const Context& context) {
  const at::Tensor input = batch.inputs.empty() ? at::Tensor() : batch.inputs.front();
  const bool has_tokens = input.defined() && input.scalar_type() == at::kLong && input.dim() >= 2;
  const std::string length = has_tokens ? str(" of ", input.size(-1), " tokens") : "";
  return str(model.name, " ", model.config.dump(), ", batch ", batch.samples, " a rank", length, ", ",
             optimizer, ", ", context.world_size(), " ranks, engine ", context.backend_name(), ", ",
             matmul_choice().fast ? "fast" : "default", " matrix products, loss ", loss);
}

}  // namespace rondo
