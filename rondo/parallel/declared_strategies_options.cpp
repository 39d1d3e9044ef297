#include "rondo/parallel/declared_strategies_options.h"

#include <algorithm>

#include "rondo/base/text.h"
#include "rondo/parallel/strategy_factories.h"
#include "rondo/strategy/one_device_options.h"

namespace rondo {

std::vector<Declaration> declared_strategies() {
  std::vector<Declaration> all = {default_declaration(), one_device_declaration()};
  for_each_strategy_factory([&](auto factory) {
    for (Declaration& each : decltype(factory)::declarations()) all.push_back(std::move(each));
  });
  return all;
}

std::string mesh_refusal(const Mesh& mesh, const std::string& name) {
  const auto divides = [&](const std::string& dimension) {
    return name == dimension || size_along(mesh, dimension) > 1;
  };
  const bool names_dimension =
      std::find(std::begin(kMeshDimensions), std::end(kMeshDimensions), name) != std::end(kMeshDimensions);
  // A plan for such a mesh assumes ddp.
  if (divides("expert") && name != "ddp" && name != "planned" && (name == "data" || !names_dimension)) {
    return str("mesh ", to_string(mesh), ": strategy ", name,
               " spreads no experts over ranks; use ddp along dimension 'data'");
  }
  return "";
}

}  // namespace rondo
