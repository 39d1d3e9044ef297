#include "rondo/parallel/pipeline/measured_cuts.h"

#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <limits>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/memory/tracker.h"
#include "rondo/nn/layers.h"
#include "rondo/nn/model.h"
#include "rondo/pipeline/schedule.h"

namespace rondo {
namespace {

struct LayerPass {
  double seconds = 0;
  std::uint64_t activation_bytes = 0;
  Tensors outputs;
};

// Runs forward and backward of one layer in isolation.
LayerPass pass_of(const ModelLayer& layer, const Tensors& inputs) {
  LayerPass pass;
  Tensors leaves, sources;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().requires_grad_(input.is_floating_point()));
    if (input.is_floating_point()) sources.push_back(leaves.back());
  }
  for (const at::Tensor& tensor : layer.tensors) {
    if (tensor.requires_grad()) sources.push_back(tensor);
  }
  const std::uint64_t before = replica_memory_tracker().total();
  const TimePoint begin = Clock::now();
  Tensors outputs = layer.forward.run(leaves);
  const std::uint64_t after = replica_memory_tracker().total();
  pass.activation_bytes = after > before ? after - before : 0;
  for (const at::Tensor& output : outputs) pass.outputs.push_back(output.detach());
  Tensors roots, gradients;
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    roots.push_back(output);
    gradients.push_back(at::ones_like(output));
  }
  if (!roots.empty() && !sources.empty()) torch::autograd::grad(roots, sources, gradients, {}, false, true);
  pass.seconds = seconds(Clock::now() - begin);
  return pass;
}

}  // namespace

std::vector<pipeline::UnitCost> measure_layers(const Model& model, const Batch& batch) {
  constexpr int kPasses = 3;
  const EvaluationMode evaluation(*model.module);  // running statistics do not change
  std::vector<pipeline::UnitCost> costs;
  Tensors inputs = batch.inputs;
  for (const ModelLayer& layer : layers_of(model)) {
    pipeline::UnitCost& cost = costs.emplace_back();
    cost.seconds = std::numeric_limits<double>::infinity();
    LayerPass pass;
    for (int i = 0; i < kPasses; ++i) {
      pass = pass_of(layer, inputs);
      if (i > 0) cost.seconds = std::min(cost.seconds, pass.seconds);
    }
    cost.activation_bytes = pass.activation_bytes;
    // Counts parameters, gradients and the two moments of Adam.
    for (const at::Tensor& tensor : layer.tensors) cost.state_bytes += 4 * tensor.nbytes();
    inputs = std::move(pass.outputs);
  }
  return costs;
}

std::vector<std::string> measured_stage_cuts(const Context& context, const Model& model, const Batch& batch,
                                             const PipelineOptions& options, std::uint64_t limit) {
  nlohmann::json told = {{"cuts", nlohmann::json::array()}, {"error", ""}};
  if (context.rank() == 0) {
    try {
      const pipeline::Schedule schedule =
          pipeline::make_schedule(options.schedule, size_along(context.mesh(), "pipeline"),
                                  static_cast<int>(options.micro_batches), options.chunks);
      const std::int64_t samples =
          std::max<std::int64_t>(1, (batch.samples + options.micro_batches - 1) / options.micro_batches);
      Batch part = batch;
      for (at::Tensor& input : part.inputs) input = input.narrow(0, 0, std::min(samples, batch.samples));
      const std::vector<ModelLayer> layers = layers_of(model);
      const std::vector<pipeline::UnitCost> costs = measure_layers(model, part);
      const auto per_rank = static_cast<std::uint64_t>(schedule.stages() / schedule.ranks);
      // Along "tensor" a rank has about 1 / parts of each layer.
      const auto parts = static_cast<std::uint64_t>(size_along(context.mesh(), "tensor"));
      const std::vector<int> first = pipeline::balanced_cuts(
          costs, schedule.stages(), activations_of_stages(schedule), limit * parts / per_rank);
      for (std::size_t stage = 1; stage < first.size(); ++stage)
        told["cuts"].push_back(layers[static_cast<std::size_t>(first[stage])].name);
      log::info("stages begin with ", layers.front().name, ", ",
                join(told["cuts"].get<std::vector<std::string>>(), ", "));
    } catch (const UsageError& error) {
      told["error"] = error.what();
    }
  }
  told = broadcast_object(told, context.world());
  if (const std::string error = told.at("error"); !error.empty()) throw UsageError(error);
  return told.at("cuts");
}

}  // namespace rondo
