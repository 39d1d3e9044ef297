#include "rondo/profile/model_profile.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/accounting.h"
#include "rondo/base/median.h"
#include "rondo/base/time.h"
#include "rondo/models/loss.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/partition.h"
#include "rondo/observe/memory_observer.h"
#include "rondo/observe/unit_profiler.h"

namespace rondo {
namespace {

// What no unit holds is there from the begin of forward to the end of backward.
std::vector<cost::Strategy> outside_units() {
  return {cost::Strategy::ddp, cost::Strategy::zero1, cost::Strategy::zero2, cost::Strategy::zero3_keep};
}

}  // namespace

struct ModelProfiler::State {
  State(Model model, at::Tensor input, at::Tensor target, const ModelProfileOptions& options)
      : options_(options), model_(std::move(model)), input_(std::move(input)), target_(std::move(target)) {
    account_cpu_allocations();
    memory_ = std::make_shared<MemoryObserver>(process_ledger());
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
    for (UnitState* unit : units_of(*model_.module)) unit->detach(memory_);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  cost::Profile run() {
    const std::map<std::string, UnitFigures> whole = measure("none");
    std::map<std::string, UnitFigures> checkpointed;
    if (!units_of(*model_.module).empty()) checkpointed = measure("all");
    const MemoryUsage alive = process_ledger().usage();
    std::uint64_t trained = 0;
    for (const auto& [name, bytes] : gradient_bytes_) trained += bytes;

    cost::Profile profile;
    profile.model = model_.name;
    profile.batch_size = static_cast<std::uint64_t>(input_.size(0));
    profile.base_bytes = input_.nbytes() + target_.nbytes();
    for (const ModelUnit& unit : partition_) {
      const std::string& name = unit.name;
      // Optimizers keep the same for every value that they train.
      const double share =
          trained == 0 ? 0 : static_cast<double>(gradient_bytes_[name]) / static_cast<double>(trained);
      const UnitFigures& figures = whole.at(name);
      const auto again = checkpointed.find(name);
      const bool has_checkpoint = unit.state != nullptr && again != checkpointed.end();
      profile.units.push_back(
          {.name = name,
           .forward_s = median(figures.forward_s),
           .backward_s = median(figures.backward_s),
           .recompute_s = has_checkpoint ? median(again->second.recompute_s) : median(figures.forward_s),
           .optimizer_s = median(optimizer_s_) * share,
           .parameter_bytes = parameter_bytes_[name],
           .gradient_bytes = gradient_bytes_[name],
           .optimizer_bytes = static_cast<std::uint64_t>(
               static_cast<double>(alive[MemoryCategory::optimizer_state]) * share),
           .activation_bytes = figures.activation_bytes,
           .checkpointed_activation_bytes =
               has_checkpoint ? std::min(again->second.activation_bytes, figures.activation_bytes)
                              : figures.activation_bytes,
           .forward_workspace_bytes = figures.forward_workspace_bytes,
           .backward_workspace_bytes = figures.backward_workspace_bytes,
           .strategies = unit.state == nullptr ? outside_units() : std::vector<cost::Strategy>()});
    }
    return profile;
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
    const Loss loss = cross_entropy(model_.forward(input_), target_);
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
  at::Tensor input_;
  at::Tensor target_;
  std::shared_ptr<MemoryObserver> memory_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<ModelUnit> partition_;
  std::map<std::string, std::uint64_t> parameter_bytes_, gradient_bytes_;
  std::vector<double> optimizer_s_;
};

ModelProfiler::ModelProfiler(Model model, at::Tensor input, at::Tensor target,
                             const ModelProfileOptions& options)
    : state_(std::make_unique<State>(std::move(model), std::move(input), std::move(target), options)) {}

ModelProfiler::~ModelProfiler() = default;

cost::Profile ModelProfiler::run() { return state_->run(); }

void ModelProfiler::pass() { state_->pass(nullptr); }

}  // namespace rondo
