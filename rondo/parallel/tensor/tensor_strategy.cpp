#include "rondo/parallel/tensor/tensor_strategy.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/parallel/ddp/ddp_strategy.h"
#include "rondo/parallel/gradients/model_agreement.h"
#include "rondo/parallel/tensor/tensor_parallel_model.h"
#include "rondo/strategy/one_device.h"
#include "rondo/strategy/synchronous_training.h"

namespace rondo {
namespace {

// Returns the strategy for one replica; ranks along "context" have the same parameters.
std::unique_ptr<Strategy> strategy_of_parts(const Context& meshed) {
  if (size_along(meshed.mesh(), "context") == 1)
    return std::make_unique<OneDevice>(meshed.within(meshed.group("data")));
  return std::make_unique<DdpStrategy>(meshed.within(meshed.new_group_along({"data", "context"})),
                                       DdpStrategyOptions());
}

std::string name_on(const Mesh& mesh) {
  return size_along(mesh, "context") > 1 && size_along(mesh, "tensor") == 1 ? "context" : "tensor";
}

}  // namespace

TensorStrategy::TensorStrategy(const Context& context, std::unique_ptr<Strategy> replicas,
                               const TensorOptions& options)
    : MeshStrategy(name_on(context.mesh()), context, std::move(replicas)), options_(options) {
  check(options_);
}

std::unique_ptr<Training> TensorStrategy::prepare(const Recipe& recipe) {
  return std::make_unique<SynchronousTraining>(*this, recipe);
}

std::unique_ptr<PreparedModel> TensorStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  if (size_along(context().mesh(), "tensor") > 1) {
    const Group& tensor = context().group("tensor");
    const ModelTensors tensors = tensors_of(*module);
    verify_same_model(tensors, {}, tensor);
    broadcast_coalesced(tensors.all_tensors(), tensor, /*root=*/0);
  }
  DividedModel divided = divide_model(*module, context(), options_);
  return std::make_unique<TensorParallelModel>(inner().prepare(std::move(module)), std::move(divided),
                                               context());
}

std::unique_ptr<Strategy> TensorStrategyFactory::make(const std::string& name, const Context& context,
                                                      const TensorOptions& options) {
  const bool is_meshed = context.mesh().size() > 1;
  const Context meshed = is_meshed ? context : context.mesh({{name, context.world_size()}});
  if (const int replicas = size_along(meshed.mesh(), "data"); replicas > 1) {
    throw UsageError(str("strategy ", name, " divides one replica, and the mesh ", to_string(meshed.mesh()),
                         " has ", replicas, "; use strategy_on_mesh() to train several"));
  }
  return std::make_unique<TensorStrategy>(meshed, strategy_of_parts(meshed), options);
}

}  // namespace rondo
