#include "rondo/parallel/tensor/divided_model.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/tensor_parallel/parallelize.h"
#include "rondo/nn/tensor_parallel/ring_attention.h"

namespace rondo {
namespace {

// "*.up=column,*.down=row".
std::vector<ParallelRules::Rule> parse_rules(const std::string& text) {
  std::vector<ParallelRules::Rule> rules;
  for (const std::string& entry : split(text, ',')) {
    const std::size_t equals = entry.rfind('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError(str("tensor-rules: '", entry, "' is not PATTERN=STYLE, such as *.up=column"));
    rules.push_back({entry.substr(0, equals),
                     parse_parallel_style(entry.substr(equals + 1), str("tensor-rules ", entry))});
  }
  return rules;
}

ParallelRules rules_for(const torch::nn::Module& module, const TensorOptions& options) {
  if (!options.rules.empty())
    return {.rules = parse_rules(options.rules), .sequence = options.sequence_parallel};
  if (const auto* model = dynamic_cast<const ParallelModel*>(&module))
    return model->parallel_rules(options.sequence_parallel);
  throw UsageError(
      str("strategy tensor: ", module.name(), " does not say how it is divided (gpt and bert do); ",
          "give rules (tensor-rules '*.up=column,*.down=row'), or make it a rondo::ParallelModel"));
}

void divide_sequence(torch::nn::Module& module, const Group& ranks, const TensorOptions& options) {
  if (options.sequence_parallel)
    throw UsageError(str("sequence-parallel divides a sequence that the mesh's context of ", ranks.size(),
                         " ranks divides already"));
  auto* const model = dynamic_cast<ContextParallelModel*>(&module);
  if (model == nullptr) {
    throw UsageError(
        str("a mesh with context: ", module.name(),
            " does not say how its sequence is divided (gpt does); make it a rondo::ContextParallelModel"));
  }
  model->divide_context(ranks);
}

}  // namespace

DividedModel divide_model(torch::nn::Module& module, const Context& context, const TensorOptions& options) {
  const Mesh& mesh = context.mesh();
  if (size_along(mesh, "context") > 1) divide_sequence(module, context.group("context"), options);
  const bool has_tensor =
      std::any_of(mesh.begin(), mesh.end(), [](const auto& dimension) { return dimension.name == "tensor"; });
  if (!has_tensor) return {};
  const Division division = parallelize(module, rules_for(module, options), context.group("tensor"));
  DividedModel divided{.divided_outputs = division.divided_outputs()};
  for (const ModelTensor& parameter : tensors_of(module).parameters) {
    if (const Shard* const address = division.find(parameter.tensor))
      divided.addresses[parameter.name] = *address;
  }
  return divided;
}

void check(const TensorOptions& options) {
  if (!options.rules.empty()) parse_rules(options.rules);
}

}  // namespace rondo
