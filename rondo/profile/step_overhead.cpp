#include "rondo/profile/step_overhead.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/median.h"
#include "rondo/data/dataset.h"
#include "rondo/nn/unit_state.h"
#include "rondo/observe/unit_profiler.h"
#include "rondo/parallel/sharded/sharded_strategy.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

// The samples of one batch, over and over.
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

// Of every step what is left of it without its units and without waits for blocks.
class OutsideUnits final : public Callback {
 public:
  std::string name() const override { return "outside_units"; }

  void on_train_begin(Trainer& trainer, const FitOutline&) override {
    // Units that do not lie in each other, as the profile has them.
    for (const ModelUnit& unit : partition_into_units(*trainer.model().module)) {
      if (unit.state == nullptr) continue;
      unit.state->attach(spans_);
      units_.push_back(unit.state);
    }
  }

  void on_step_end(Trainer& trainer, const StepRecord& record) override {
    double rest = record.times.step_ms * 1e-3;
    for (const TraceSpan& span : spans_->take()) {
      // What is computed again is within a backward pass.
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

}  // namespace

double seconds_outside_units(const Context& context, Model model, const Batch& batch,
                             const StepOverheadOptions& options) {
  constexpr int kWarmUp = 3;  // steps in which memory is touched for the first time
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
  // Each rank has a batch of its own, which the others need not have.
  trainer.fit(data, {.steps = steps,
                     .batch_size = batch.samples,
                     .shuffle = false,
                     .input_sharding = AutoShard::off,
                     .callbacks = {outside}});
  // A rank that is ahead waits for the others at the end of the step; the last one does not.
  at::Tensor message = at::tensor(outside->steps(), at::kDouble);
  all_reduce(message, context.world(), ReduceOp::MIN);
  const double* least = message.data_ptr<double>();
  return median({least + kWarmUp, least + message.numel()});
}

}  // namespace rondo
