#include "apps/profile/model_profile.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/accounting.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/models/loss.h"
#include "rondo/models/model.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/partition.h"
#include "rondo/observe/memory_observer.h"
#include "rondo/observe/unit_profiler.h"
#include "rondo/train/optimizer.h"

namespace rondo {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Batch {
  at::Tensor input;
  at::Tensor target;
};

// Tokens for a model with a context, else float32 samples and their classes.
Batch made_up_batch(const nlohmann::json& config, std::int64_t samples) {
  if (config.contains("context")) {
    const auto context = config.at("context").get<std::int64_t>();
    const auto vocabulary = config.at("vocabulary").get<std::int64_t>();
    return {at::randint(vocabulary, {samples, context}, at::kLong),
            at::randint(vocabulary, {samples, context}, at::kLong)};
  }
  if (!config.contains("input_shape") || !config.contains("classes"))
    throw UsageError(
        "rondo profile cannot make up data for this model: it has neither context nor input_shape");
  auto shape = config.at("input_shape").get<std::vector<std::int64_t>>();
  shape.insert(shape.begin(), samples);
  return {at::rand(shape), at::randint(config.at("classes").get<std::int64_t>(), {samples}, at::kLong)};
}

std::uint64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::uint64_t>(tensor.element_size());
}

}  // namespace

struct ModelProfiler::State {
  explicit State(const ModelProfileOptions& options) : options_(options) {
    account_cpu_allocations();
    batch_ = made_up_batch(complete_config(), options.batch_size);
    model_ = make_model(options.model, options.config);
    memory_ = std::make_shared<MemoryObserver>(process_ledger());
    memory_->label_parameters(*model_.module);
    for (UnitState* unit : units_of(*model_.module)) unit->attach(memory_);
    optimizer_ = make_optimizer({.name = options.optimizer, .learning_rate = 1e-4}, *model_.module);
    partition_ = partition_into_units(*model_.module);
    for (const ModelUnit& unit : partition_) {
      for (const ModelTensor& parameter : unit.parameters) {
        const std::uint64_t bytes = bytes_of(parameter.tensor);
        parameter_bytes_[unit.name] += bytes;
        if (parameter.tensor.requires_grad()) gradient_bytes_[unit.name] += bytes;
      }
    }
  }

  nlohmann::ordered_json run() {
    const std::map<std::string, UnitFigures> whole = measure("none");
    std::map<std::string, UnitFigures> checkpointed;
    if (!units_of(*model_.module).empty()) checkpointed = measure("all");
    const MemoryUsage alive = process_ledger().usage();
    std::uint64_t trained = 0;
    for (const auto& [name, bytes] : gradient_bytes_) trained += bytes;

    nlohmann::ordered_json units = nlohmann::ordered_json::array();
    for (const ModelUnit& unit : partition_) {
      const std::string& name = unit.name;
      // Optimizers keep the same for every value that they train.
      const double share =
          trained == 0 ? 0 : static_cast<double>(gradient_bytes_[name]) / static_cast<double>(trained);
      const UnitFigures& figures = whole.at(name);
      const auto again = checkpointed.find(name);
      const bool has_checkpoint = unit.state != nullptr && again != checkpointed.end();
      units.push_back(
          {{"name", name},
           {"forward_s", median(figures.forward_s)},
           {"backward_s", median(figures.backward_s)},
           {"recompute_s", has_checkpoint ? median(again->second.recompute_s) : median(figures.forward_s)},
           {"optimizer_s", median(optimizer_s_) * share},
           {"parameter_bytes", parameter_bytes_[name]},
           {"gradient_bytes", gradient_bytes_[name]},
           {"optimizer_bytes",
            static_cast<std::uint64_t>(static_cast<double>(alive[MemoryCategory::optimizer_state]) * share)},
           {"activation_bytes", figures.activation_bytes},
           {"checkpointed_activation_bytes",
            has_checkpoint ? std::min(again->second.activation_bytes, figures.activation_bytes)
                           : figures.activation_bytes},
           {"forward_workspace_bytes", figures.forward_workspace_bytes},
           {"backward_workspace_bytes", figures.backward_workspace_bytes}});
    }
    return {{"model", options_.model},
            {"batch_size", options_.batch_size},
            {"base_bytes", bytes_of(batch_.input) + bytes_of(batch_.target)},
            {"units", std::move(units)}};
  }

  nlohmann::json complete_config() const {
    nlohmann::json config = model_config(options_.model);
    config.update(options_.config);
    return config;
  }

  std::map<std::string, UnitFigures> measure(const char* checkpointing) {
    if (!units_of(*model_.module).empty()) checkpoint_activations(*model_.module, checkpointing);
    for (int i = 0; i < options_.warm_up; ++i) pass(nullptr);
    const auto profiler = std::make_shared<UnitProfiler>(process_ledger(), gradient_bytes_);
    std::vector<UnitState*> measured;
    for (const ModelUnit& unit : partition_) {
      if (unit.state != nullptr) measured.push_back(unit.state);
    }
    for (UnitState* unit : measured) unit->attach(profiler);
    for (int i = 0; i < options_.passes; ++i) pass(profiler.get());
    for (UnitState* unit : measured) unit->detach(profiler);
    return profiler->figures();
  }

  void pass(UnitProfiler* profiler) {
    optimizer_->zero_grad();
    memory_->enter_phase(1, "forward", MemoryCategory::activations);
    if (profiler != nullptr) profiler->begin_forward();
    const Loss loss = cross_entropy(model_.forward(batch_.input), batch_.target);
    memory_->enter_phase(1, "backward", MemoryCategory::temporaries);
    if (profiler != nullptr) profiler->begin_backward();
    loss.mean.backward();
    if (profiler != nullptr) profiler->end();
    memory_->label_gradients(*model_.module);
    memory_->enter_phase(1, "optimizer", MemoryCategory::optimizer_state);
    const TimePoint begin = Clock::now();
    optimizer_->step();
    if (profiler != nullptr) optimizer_s_.push_back(seconds(Clock::now() - begin));
    memory_->leave_phase();
  }

  ModelProfileOptions options_;
  Model model_;
  Batch batch_;
  std::shared_ptr<MemoryObserver> memory_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<ModelUnit> partition_;
  std::map<std::string, std::uint64_t> parameter_bytes_, gradient_bytes_;
  std::vector<double> optimizer_s_;
};

ModelProfiler::ModelProfiler(const ModelProfileOptions& options) : state_(std::make_unique<State>(options)) {}

ModelProfiler::~ModelProfiler() = default;

nlohmann::ordered_json ModelProfiler::run() { return state_->run(); }

void ModelProfiler::pass() { state_->pass(nullptr); }

}  // namespace rondo
