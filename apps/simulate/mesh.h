#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "rondo/cost/profile.h"
#include "rondo/cost/step_model.h"
#include "rondo/env/mesh.h"
#include "rondo/simulate/topology.h"

namespace rondo {

// A step on a mesh, as flags say it. The profile's batch is that of a replica and pass.
struct SimulatedMesh {
  Mesh mesh;
  cost::StepOptions options;
  int micro_batches = 1;  // of a pipeline
  std::string strategy;   // along data, of all units
  bool checkpoint = false;
  int prefetch = 1;
  std::string schedule = "1f1b";
  int chunks = 2;
  std::string topology = {};  // empty: the profile's link between any two ranks
  std::string algorithm = "auto";
  std::string svg = {};  // a picture of the pipeline's schedule
};

// What `rondo simulate --mesh` answers. Stages are balanced by time. Throws UsageError for a mesh that the
// model or the profile cannot be laid on.
nlohmann::ordered_json simulate_mesh(const cost::Profile& profile, const SimulatedMesh& job, bool draws);

}  // namespace rondo
