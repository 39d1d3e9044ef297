#include "rondo/profile/model_profile.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/unit_state.h"
#include "rondo/observe/memory_observer.h"
#include "rondo/observe/unit_profiler.h"

namespace rondo {
namespace {

std::uint64_t bytes_of(const std::map<std::string, std::uint64_t>& by_unit, const std::string& unit) {
  const auto found = by_unit.find(unit);
  return found == by_unit.end() ? 0 : found->second;
}

// Parameters outside units are alive from the begin of forward to the end of backward.
std::vector<cost::Strategy> outside_units() {
  return {cost::Strategy::ddp, cost::Strategy::zero1, cost::Strategy::zero2, cost::Strategy::zero3_keep};
}

}  // namespace

struct ModelProfiler::State {
  State(Model model, Batch batch, const ModelProfileOptions& options)
      : options_(options), model_(std::move(model)), batch_(std::move(batch)) {
    if (batch_.samples < 1)
      throw UsageError(str("a model is measured on a batch of one sample or more, and Batch::samples is ",
                           batch_.samples));
    track_cpu_allocations();
    memory_ = std::make_shared<MemoryObserver>(replica_memory_tracker());
    memory_->label_parameters(*model_.module);
    for (UnitState* unit : units_of(*model_.module)) unit->attach(memory_);
    optimizer_ = make_optimizer(options.optimizer, *model_.module);
    partition_ = partition_into_units(*model_.module);
    for (const ModelUnit& unit : partition_) {
      for (const ModelTensor& parameter : unit.parameters) {
        const std::uint64_t bytes = parameter.tensor.nbytes();
        parameter_bytes_[unit.name] += bytes;
        if (parameter.tensor.requires_grad()) gradient_bytes_[unit.name] += bytes;
      }
    }
  }

  ~State() {
    if (model_.module) leave();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void measure() {
    const bool has_units = !units_of(*model_.module).empty();
    if (whole_ == nullptr) {
      whole_ = std::make_shared<UnitProfiler>(replica_memory_tracker(), gradient_bytes_);
      checkpointed_ = std::make_shared<UnitProfiler>(replica_memory_tracker(), gradient_bytes_);
      for (int i = 1; i < options_.warm_up; ++i) pass(nullptr);
    }
    constexpr int kTurns = 2;
    for (int turn = 0; turn < kTurns; ++turn) {
      const int passes = (options_.passes + turn) / kTurns;
      if (has_units) checkpoint_activations(*model_.module, "none");
      train(whole_, passes);
      if (!has_units) continue;
      checkpoint_activations(*model_.module, "all");
      train(checkpointed_, passes);
    }
    // Restores the model for further training.
    if (has_units) checkpoint_activations(*model_.module, "none");
  }

  std::vector<double> passes() const {
    std::vector<double> passes;
    for (const ModelUnit& unit : partition_) {
      const UnitFigures& figures = whole_->figures().at(unit.name);
      passes.resize(figures.forward_s.size());
      for (std::size_t i = 0; i < passes.size(); ++i)
        passes[i] += figures.forward_s[i] + figures.backward_s[i];
    }
    return passes;
  }

  double spread() const {
    std::vector<double> passes = this->passes();
    std::sort(passes.begin(), passes.end());
    const std::size_t quarter = passes.size() / 4;
    return passes.empty()
               ? 0
               : (passes[passes.size() - 1 - quarter] - passes[quarter]) / passes[passes.size() / 2];
  }

  cost::Profile profile() const {
    const std::map<std::string, UnitFigures>& whole = whole_->figures();
    const std::map<std::string, UnitFigures>& checkpointed = checkpointed_->figures();
    const MemoryUsage alive = replica_memory_tracker().usage();
    std::uint64_t trained = 0;
    for (const auto& [name, bytes] : gradient_bytes_) trained += bytes;

    cost::Profile profile;
    profile.model = model_.name;
    profile.batch_size = static_cast<std::uint64_t>(batch_.samples);
    for (const std::vector<at::Tensor>* const tensors : {&batch_.inputs, &batch_.targets}) {
      for (const at::Tensor& tensor : *tensors) profile.base_bytes += tensor.nbytes();
    }
    for (const ModelUnit& unit : partition_) {
      const std::string& name = unit.name;
      const UnitFigures& figures = whole.at(name);
      cost::UnitProfile entry{.name = name,
                              .forward_s = median(figures.forward_s),
                              .backward_s = median(figures.backward_s),
                              .recompute_s = median(figures.forward_s),
                              .parameter_bytes = bytes_of(parameter_bytes_, name),
                              .gradient_bytes = bytes_of(gradient_bytes_, name),
                              .activation_bytes = figures.activation_bytes,
                              .checkpointed_activation_bytes = figures.activation_bytes,
                              .forward_workspace_bytes = figures.forward_workspace_bytes,
                              .backward_workspace_bytes = figures.backward_workspace_bytes,
                              .strategies = {}};
      // Optimizers keep the same state for every trained value.
      const double share =
          trained == 0 ? 0 : static_cast<double>(entry.gradient_bytes) / static_cast<double>(trained);
      entry.optimizer_s = median(optimizer_s_) * share;
      entry.optimizer_bytes =
          static_cast<std::uint64_t>(static_cast<double>(alive[MemoryCategory::optimizer_state]) * share);
      if (unit.state == nullptr) entry.strategies = outside_units();
      const auto again = checkpointed.find(name);
      if (unit.state != nullptr && again != checkpointed.end()) add_checkpointed(entry, again->second);
      profile.units.push_back(std::move(entry));
    }
    profile.spread = spread();
    return profile;
  }

  void leave() {
    for (UnitState* unit : units_of(*model_.module)) unit->detach(memory_);
  }

  bool has_unused_parameters() const {
    const std::vector<at::Tensor> parameters = model_.module->parameters();
    return std::any_of(parameters.begin(), parameters.end(), [](const at::Tensor& parameter) {
      return parameter.requires_grad() && !parameter.grad().defined();
    });
  }

  Model take_model() {
    leave();
    optimizer_->zero_grad();
    return std::exchange(model_, {});
  }

  static void add_checkpointed(cost::UnitProfile& entry, const UnitFigures& figures) {
    entry.recompute_s = median(figures.recompute_s);
    entry.checkpointed_activation_bytes = std::min(figures.activation_bytes, entry.activation_bytes);
    // Measured above a checkpointed unit's kept bytes; reported above all activations.
    entry.checkpointed_backward_workspace_bytes =
        figures.backward_workspace_bytes + static_cast<std::int64_t>(entry.checkpointed_activation_bytes) -
        static_cast<std::int64_t>(entry.activation_bytes);
  }

  void train(const std::shared_ptr<UnitProfiler>& profiler, int passes) {
    pass(nullptr);
    std::vector<UnitState*> measured;
    for (const ModelUnit& unit : partition_) {
      if (unit.state != nullptr) measured.push_back(unit.state);
    }
    for (UnitState* unit : measured) unit->attach(profiler);
    for (int i = 0; i < passes; ++i) pass(profiler.get());
    for (UnitState* unit : measured) unit->detach(profiler);
  }

  void pass(UnitProfiler* profiler) {
    optimizer_->zero_grad();
    memory_->enter_phase(1, "forward", MemoryCategory::activations);
    if (profiler != nullptr) profiler->begin_forward();
    const Loss loss = options_.loss(model_.forward.run(batch_.inputs), batch_.targets, batch_.samples);
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
  std::shared_ptr<UnitProfiler> whole_, checkpointed_;  // created by the first measurement
};

ModelProfiler::ModelProfiler(Model model, Batch batch, const ModelProfileOptions& options)
    : state_(std::make_unique<State>(std::move(model), std::move(batch), options)) {}

ModelProfiler::~ModelProfiler() = default;

void ModelProfiler::measure() { state_->measure(); }

double ModelProfiler::spread() const { return state_->spread(); }

cost::Profile ModelProfiler::profile() const { return state_->profile(); }

std::vector<double> ModelProfiler::passes() const { return state_->passes(); }

void ModelProfiler::pass() { state_->pass(nullptr); }

bool ModelProfiler::has_unused_parameters() const { return state_->has_unused_parameters(); }

Model ModelProfiler::take_model() {
  Model model = state_->take_model();
  state_.reset();
  return model;
}

}  // namespace rondo
