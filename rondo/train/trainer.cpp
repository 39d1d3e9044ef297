#include "rondo/train/trainer.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <map>

#include "rondo/backend/accounting.h"
#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/random_state.h"
#include "rondo/memory/scope.h"
#include "rondo/nn/partition.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/observe/memory_observer.h"
#include "rondo/train/agreement.h"
#include "rondo/train/collective_checkpoint.h"
#include "rondo/train/evaluation.h"
#include "rondo/train/fit_loop.h"
#include "rondo/train/gathered_states.h"

namespace rondo {

Trainer::Trainer(Strategy& strategy, Model model, c10::Device device, const PrecisionOptions& precision)
    : strategy_(strategy),
      model_(std::move(model)),
      device_(device),
      precision_(precision, device, strategy.context().world()),
      loss_(cross_entropy),
      metrics_{loss_metric()} {
  const MemoryScope scope(MemoryCategory::parameters);
  model_.module->to(device_);
  if (precision_.settings().master_weights &&
      strategy_.set_mixed_precision(precision_.policy_for_strategy())) {
    precision_.leave_masters_to_strategy();
  }
  precision_.cast(*model_.module);
  model_.forward = precision_.cast_around(std::move(model_.forward));
  if (accounts_cpu_allocations()) {
    memory_ = std::make_shared<MemoryObserver>(process_ledger());
    memory_->label_parameters(*model_.module);
    for (UnitState* unit : units_of(*model_.module)) unit->attach(memory_);
  }
  name_sample_dropouts(*model_.module);
  prepared_ = strategy_.prepare(model_.module);
  model_.forward = [forward = std::move(model_.forward),
                    prepared = prepared_.get()](const at::Tensor& input) {
    return prepared->cast_output(forward(prepared->cast_input(input)));
  };
  if (precision_.settings().master_weights && prepared_->parts().optimizes_parts() &&
      !prepared_->parts().keeps_masters()) {
    throw UsageError(
        str("strategy ", strategy_.name(),
            " gives the optimizer parts of the parameters, of which no master weights can be kept; "
            "use opt level O0, O1 or O3 with it, or a strategy that replicates the model"));
  }
  precision_.keep_masters(*model_.module);
}

Trainer::~Trainer() {
  if (!memory_) return;
  for (UnitState* unit : units_of(*model_.module)) unit->detach(memory_);
}

void Trainer::compile(const OptimizerFactory& optimizer, LossFunction loss, std::vector<Metric> metrics) {
  const MemoryScope scope(MemoryCategory::optimizer_state);
  MasterWeights* const masters = precision_.masters();
  optimizer_ = optimizer(masters != nullptr ? masters->module() : prepared_->module());
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
  const ForwardPasses passes = prepare_forwards();
  const auto autocast = precision_.autocast();
  return evaluate_exactly(strategy_, model_, device_, loss_, metrics_, data, options.batch_size, passes);
}

at::Tensor Trainer::predict(const Dataset& data, const EvaluateOptions& options) {
  paused_ = true;
  const ForwardPasses passes = prepare_forwards();
  const auto autocast = precision_.autocast();
  return predict_all(strategy_, model_, device_, data, options.batch_size, passes);
}

// Once for all batches is less to send; but where memory is limited the model may not fit as a whole.
ForwardPasses Trainer::prepare_forwards() {
  if (!prepared_->parts().optimizes_parts()) {
    prepared_->make_whole();
    return ForwardPasses::alone;
  }
  const double limited = process_ledger().limit() ? 1.0 : 0.0;
  const at::Tensor any = strategy_.reduce(ReduceOp::MAX, at::tensor({limited}, at::kDouble));
  if (any.item<double>() == 0) {
    prepared_->make_whole();
    return ForwardPasses::alone;
  }
  prepared_->parts().settle();
  return ForwardPasses::together;
}

void Trainer::save(const std::filesystem::path& root, int keep) {
  require_compiled();
  paused_ = true;
  if (memory_) memory_->enter_phase(position_.step, "checkpoint", MemoryCategory::other);
  const Context& context = strategy_.context();
  prepared_->parts().settle();
  CheckpointContents contents;
  const NamedTensors model = saved_tensors();
  contents.model = model_sources(*prepared_, model);
  add_optimizer(contents, *prepared_, saved_optimizer(), model);
  contents.random_states = gather(random_state(device_), context.world(), 0);
  contents.communication_states = gather_states(prepared_->communication_state(), context.world());
  for (const auto& callback : callbacks_) callback_states_[callback->name()] = callback->state();
  contents.values = {{"step", position_.step},
                     {"epoch", position_.epoch},
                     {"batch", position_.batch},
                     {"elapsed_s", position_.elapsed_s},
                     {"world_size", context.world_size()},
                     {"model", {{"name", model_.name}, {"config", model_.config}}},
                     {"sampling", sampling_},
                     {"precision", precision_.state()},
                     {"callbacks", callback_states_}};
  save_together(context, root, position_.step, std::move(contents), keep);
  if (memory_) memory_->leave_phase();
}

void Trainer::restore(const std::filesystem::path& checkpoint) {
  require_compiled();
  const Context& context = strategy_.context();
  prepared_->parts().settle();
  TrainingState state{.model = saved_tensors(), .optimizers = {saved_optimizer()}};
  if (prepared_->parts().optimizes_parts()) {
    state.model = stand_ins(*prepared_, state.model);
    state.take = [this, parts = prepared_->module().named_parameters()](const std::string& name,
                                                                        const at::Tensor& value) {
      if (!parts.contains(name)) return false;
      prepared_->parts().set_parameter(name, value);
      return true;
    };
  }
  run_agreed(context, [&] {
    const MemoryScope scope(MemoryCategory::optimizer_state);
    load_checkpoint(checkpoint, state);
    const nlohmann::json& values = state.values;
    position_ = {.step = values.at("step"),
                 .epoch = values.at("epoch"),
                 .batch = values.at("batch"),
                 .elapsed_s = values.at("elapsed_s")};
    sampling_ = values.at("sampling");
    callback_states_ = values.at("callbacks");
    precision_.weights_changed();
    precision_.restore(values.value("precision", nlohmann::json::object()));
    // At another world size the ranks' random streams cannot continue; they start anew, as at the start of a
    // run.
    const auto rank = static_cast<std::size_t>(context.rank());
    if (static_cast<int>(state.random_states.size()) == context.world_size()) {
      set_random_state(state.random_states[rank], device_);
    }
    const std::string lost = prepared_->restore_communication(state.communication_states);
    if (!lost.empty() && rank == 0) log::warning(checkpoint.string(), ": ", lost);
  });
  prepared_->parts().adopt_values();
}

NamedTensors Trainer::saved_tensors() {
  // With master weights those are the model: the narrow ones are their rounding.
  MasterWeights* const masters = precision_.masters();
  return named_tensors(masters != nullptr ? masters->module() : *model_.module);
}

NamedOptimizer Trainer::saved_optimizer() {
  NamedOptimizer optimizer{.optimizer = optimizer_.get()};
  if (prepared_->parts().optimizes_parts()) {
    optimizer.parameters = named_tensors(prepared_->module());
    optimizer.part_of = [this](const std::string& parameter, const at::Tensor& whole) {
      return prepared_->parts().part_of(parameter, whole);
    };
  }
  return optimizer;
}

torch::optim::Optimizer& Trainer::optimizer() {
  require_compiled();
  return *optimizer_;
}

std::vector<CommunicationSpan> Trainer::communication_spans() const {
  return prepared_->communication_spans();
}

void Trainer::require_compiled() const {
  if (!optimizer_) throw UsageError("call Trainer::compile with an optimizer before training");
}

}  // namespace rondo
