#pragma once

#include <string>
#include <vector>

namespace rondo {

// One dimension of a mesh: the ranks of a job as a grid, with one dimension for each kind of parallelism. The
// last dimension varies fastest. Corresponds to PyTorch's DeviceMesh.
struct MeshDimension {
  std::string name;  // "data"
  int size = 1;      // number of ranks along the dimension
  // Compares name and size.
  bool operator==(const MeshDimension&) const = default;
};
// The mesh of a job, slowest dimension first.
using Mesh = std::vector<MeshDimension>;

// All dimensions, in the order of their strides. Ranks of different pipeline stages may be far apart;
// tensor-parallel ranks communicate most and are neighbours.
inline constexpr const char* kMeshDimensions[] = {"pipeline", "data", "context", "expert", "tensor"};

// Parses "pipeline=2,data=2", in any order. Throws UsageError for other text; `what` names its origin.
Mesh parse_mesh(const std::string& text, const std::string& what);
// Returns text such as "pipeline=2,data=2".
std::string to_string(const Mesh& mesh);
// Returns the dimensions in the order of kMeshDimensions, adding "data" if it is missing. Throws UsageError
// for a dimension that is unknown, repeated or smaller than 1, and if the sizes do not multiply to
// `world_size`.
Mesh ordered_mesh(const Mesh& mesh, int world_size);
// Returns the number of ranks along a dimension; 1 if the mesh lacks it.
int size_along(const Mesh& mesh, const std::string& dimension);
// Dimensions along which ranks, or groups of ranks, read different data.
inline constexpr const char* kReplicaDimensions[] = {"data", "expert"};
// Returns the number of such ranks or groups: the product of the sizes along kReplicaDimensions.
int replicas_of(const Mesh& mesh);
// Returns the groups of ranks that differ only in `dimensions`, one group for each position in the other
// dimensions. The groups partition all ranks.
std::vector<std::vector<int>> ranks_along(const Mesh& mesh, const std::vector<std::string>& dimensions);

}  // namespace rondo
