#include "rondo/train/optimizer_state_dict.h"

#include "rondo/checkpoint/checkpoint.h"

namespace rondo {
namespace {

NamedOptimizer named(PreparedModel& model, torch::optim::Optimizer& optimizer) {
  return {.optimizer = &optimizer,
          .parameters = named_tensors(model.module()),
          .part_of = [&model](const std::string& parameter, const at::Tensor& whole) {
            return model.parts().part_of(parameter, whole);
          }};
}

void load(const NamedOptimizer& optimizer, const nlohmann::json& description, const NamedTensors& tensors) {
  prepare_optimizer(optimizer.name, *optimizer.optimizer, optimizer.parameters, description, tensors,
                    "the optimizer's state dict")();
}

}  // namespace

OptimizerSnapshot full_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer) {
  model.parts().settle();
  const NamedOptimizer own = named(model, optimizer);
  OptimizerSnapshot snapshot = snapshot_optimizer(own.name, optimizer, own.parameters);
  for (NamedTensor& part : snapshot.tensors)
    part.tensor = model.parts().assemble(parameter_of(own.name, part.name), part.tensor);
  return snapshot;
}

OptimizerSnapshot sharded_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer) {
  model.parts().settle();
  const NamedOptimizer own = named(model, optimizer);
  return snapshot_optimizer(own.name, optimizer, own.parameters);
}

void load_full_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer,
                                    const OptimizerSnapshot& state) {
  model.parts().settle();
  const NamedOptimizer own = named(model, optimizer);
  load(own, state.description, parts_of(own, state.tensors));
}

void load_sharded_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer,
                                       const OptimizerSnapshot& state) {
  model.parts().settle();
  load(named(model, optimizer), state.description, state.tensors);
}

}  // namespace rondo
