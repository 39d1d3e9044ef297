#pragma once

#include <string>
#include <vector>

namespace rondo {

// The ranks of a job as a grid: one dimension for each way in which they share the work, the last one the
// fastest. PyTorch's DeviceMesh.
struct MeshDimension {
  std::string name;  // "data"
  int size = 1;      // ranks along the dimension
  // Whether both have the same name and size.
  bool operator==(const MeshDimension&) const = default;
};
// Of a job, slowest dimension first.
using Mesh = std::vector<MeshDimension>;

// Which dimensions there are, in the order in which they lie on the ranks: stages of a pipeline may be far
// from each other, tensor-parallel ranks talk most and are neighbours.
inline constexpr const char* kMeshDimensions[] = {"pipeline", "data", "context", "expert", "tensor"};

// "pipeline=2,data=2": in any order. Throws UsageError for another text; `what` names where it stands.
Mesh parse_mesh(const std::string& text, const std::string& what);
// "pipeline=2,data=2".
std::string to_string(const Mesh& mesh);
// The same dimensions in the order of kMeshDimensions, "data" among them. Throws UsageError for a dimension
// that is not known, comes twice or has no rank, and where all together have not `world_size` ranks.
Mesh ordered_mesh(const Mesh& mesh, int world_size);
// Ranks along that dimension; 1 where the mesh does not have it.
int size_along(const Mesh& mesh, const std::string& dimension);
// Ranks, or groups of ranks, that each read data of their own: along "data" and "expert".
inline constexpr const char* kReplicaDimensions[] = {"data", "expert"};
// How many these are: sizes along kReplicaDimensions, multiplied.
int replicas_of(const Mesh& mesh);
// Ranks that differ in `dimensions` only, for each place in the others; together all ranks.
std::vector<std::vector<int>> ranks_along(const Mesh& mesh, const std::vector<std::string>& dimensions);

}  // namespace rondo
