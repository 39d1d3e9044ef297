#include "rondo/parallel/served_mesh_options.h"

#include <algorithm>

#include "rondo/base/text.h"

namespace rondo {

std::string mesh_refusal(const Mesh& mesh, const std::string& name) {
  const auto divides = [&](const std::string& dimension) {
    return name == dimension || size_along(mesh, dimension) > 1;
  };
  const bool names_dimension =
      std::find(std::begin(kMeshDimensions), std::end(kMeshDimensions), name) != std::end(kMeshDimensions);
  // What is planned for such a mesh is ddp.
  if (divides("expert") && name != "ddp" && name != "planned" && (name == "data" || !names_dimension)) {
    return str("mesh ", to_string(mesh), ": strategy ", name,
               " spreads no experts over ranks; use ddp along dimension 'data'");
  }
  return "";
}

}  // namespace rondo
