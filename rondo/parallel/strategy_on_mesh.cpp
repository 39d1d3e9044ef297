#include "rondo/parallel/strategy_on_mesh.h"

#include <algorithm>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/declared_strategies_options.h"
#include "rondo/parallel/pipeline/pipeline_strategy.h"
#include "rondo/parallel/tensor/tensor_strategy.h"

namespace rondo {
namespace {

// Returns a context of the ranks that share this rank's parameters and compute on other samples or sequence
// parts.
Context ranks_of_parameters(const Context& context) {
  if (size_along(context.mesh(), "context") == 1) return context.within(context.group("data"));
  return context.within(context.new_group_along({"data", "context"}));
}

}  // namespace

std::unique_ptr<Strategy> strategy_on_mesh(const StrategyRegistry& strategies, const std::string& name,
                                           const Context& context,
                                           const std::function<OptionValues(const std::string&)>& values) {
  const Mesh& mesh = context.mesh();
  const auto divides = [&](const std::string& dimension) {
    return name == dimension || size_along(mesh, dimension) > 1;
  };
  if (const std::string refusal = mesh_refusal(mesh, name); !refusal.empty()) throw UsageError(refusal);
  const bool names_dimension =
      name != "data" &&
      std::find(std::begin(kMeshDimensions), std::end(kMeshDimensions), name) != std::end(kMeshDimensions);
  std::unique_ptr<Strategy> strategy;
  if (divides("expert")) {
    // Ranks that share experts compute on different tokens: one strategy serves all dimensions that divide
    // tokens.
    const Context ranks = context.within(context.new_group_along({"data", "context", "expert"}));
    const int copies = size_along(mesh, "data") * size_along(mesh, "context");
    strategy = strategies.make(
        "expert", ranks.mesh({{"data", copies}, {"expert", size_along(mesh, "expert")}}), values("expert"));
  } else {
    const Context ranks = ranks_of_parameters(context);
    const std::string data = !names_dimension ? name : (ranks.world_size() > 1 ? "ddp" : "one_device");
    strategy = strategies.make(data, ranks, values(data));
  }
  std::optional<TensorOptions> division;
  if (divides("tensor") || divides("context"))
    division = strategies.read<TensorOptions>("tensor", values("tensor"));
  if (divides("pipeline")) {
    return make_pipeline(context, std::move(strategy),
                         strategies.read<PipelineOptions>("pipeline", values("pipeline")), division);
  }
  if (division) return std::make_unique<TensorStrategy>(context, std::move(strategy), *division);
  return strategy;
}

}  // namespace rondo
