#include "rondo/env/mesh.h"

#include <algorithm>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

std::int64_t ranks_of(const Mesh& mesh) {
  std::int64_t ranks = 1;
  for (const MeshDimension& dimension : mesh) ranks *= dimension.size;
  return ranks;
}

}  // namespace

Mesh parse_mesh(const std::string& text, const std::string& what) {
  Mesh mesh;
  for (const std::string& entry : split(text, ',')) {
    const std::size_t sign = entry.find('=');
    if (sign == std::string::npos)
      throw UsageError(
          str(what, " ", text, ": '", entry, "' is not DIMENSION=RANKS, as in pipeline=2,data=2"));
    const long long size = parse_integer(entry.substr(sign + 1), str(what, " ", text));
    if (size < 1 || size > 1 << 20)
      throw UsageError(str(what, " ", text, ": a dimension has 1 or more ranks, not ", size));
    mesh.push_back({entry.substr(0, sign), static_cast<int>(size)});
  }
  return mesh;
}

std::string to_string(const Mesh& mesh) {
  std::vector<std::string> entries;
  for (const MeshDimension& dimension : mesh) entries.push_back(str(dimension.name, "=", dimension.size));
  return join(entries, ",");
}

Mesh ordered_mesh(const Mesh& mesh, int world_size) {
  for (const MeshDimension& dimension : mesh) {
    const auto same = [&](const MeshDimension& other) { return other.name == dimension.name; };
    if (std::find(std::begin(kMeshDimensions), std::end(kMeshDimensions), dimension.name) ==
        std::end(kMeshDimensions)) {
      throw UsageError(str("mesh ", to_string(mesh), ": there is no dimension '", dimension.name,
                           "'; expected ", join(kMeshDimensions, ", ")));
    }
    if (std::count_if(mesh.begin(), mesh.end(), same) > 1)
      throw UsageError(str("mesh ", to_string(mesh), ": dimension '", dimension.name, "' appears twice"));
    if (dimension.size < 1)
      throw UsageError(str("mesh ", to_string(mesh), ": a dimension has 1 or more ranks"));
  }
  Mesh ordered;
  for (const char* name : kMeshDimensions) {
    const auto found = std::find_if(mesh.begin(), mesh.end(),
                                    [&](const MeshDimension& dimension) { return dimension.name == name; });
    if (found != mesh.end()) ordered.push_back(*found);
    if (found == mesh.end() && std::string(name) == "data") ordered.push_back({"data", 1});
  }
  if (const std::int64_t ranks = ranks_of(ordered); ranks != world_size) {
    throw UsageError(
        str("mesh ", to_string(mesh), " is of ", ranks, " ranks, but this job has ", world_size));
  }
  return ordered;
}

int size_along(const Mesh& mesh, const std::string& dimension) {
  const auto found = std::find_if(mesh.begin(), mesh.end(),
                                  [&](const MeshDimension& each) { return each.name == dimension; });
  return found == mesh.end() ? 1 : found->size;
}

int replicas_of(const Mesh& mesh) {
  int replicas = 1;
  for (const char* dimension : kReplicaDimensions) replicas *= size_along(mesh, dimension);
  return replicas;
}

std::vector<std::vector<int>> ranks_along(const Mesh& mesh, const std::vector<std::string>& dimensions) {
  // Groups by the linear index of the coordinates in the other dimensions.
  std::map<int, std::vector<int>> groups;
  for (int rank = 0; rank < ranks_of(mesh); ++rank) {
    int rest = rank, place = 0, stride = 1;
    for (auto dimension = mesh.rbegin(); dimension != mesh.rend(); ++dimension) {
      const bool along = std::find(dimensions.begin(), dimensions.end(), dimension->name) != dimensions.end();
      if (!along) place += rest % dimension->size * stride;
      stride *= dimension->size;
      rest /= dimension->size;
    }
    groups[place].push_back(rank);
  }
  std::vector<std::vector<int>> result;
  for (auto& [place, ranks] : groups) result.push_back(std::move(ranks));
  return result;
}

}  // namespace rondo
