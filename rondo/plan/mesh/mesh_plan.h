#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/env/mesh.h"
#include "rondo/plan/explain.h"
#include "rondo/plan/planner.h"
#include "rondo/plan/solver/linear_model.h"
#include "rondo/simulate/mesh_step.h"

namespace rondo::plan {

// Cost and saving of recomputing a layer's activations.
struct Recomputation {
  double seconds = 0;             // time of the recomputation
  std::uint64_t saved_bytes = 0;  // memory that it saves
};

// Returns the indices of the layers that save at least `need` bytes in the least time. Solves a knapsack over
// classes of layers with equal savings, exactly unless the number of classes is very large. Returns all
// layers if even these do not suffice.
std::vector<std::size_t> cheapest_recomputation(const std::vector<Recomputation>& layers, std::uint64_t need);

// A planned pipeline with its simulated step.
struct PipelinePlan {
  simulate::PipelineChoice choice;
  simulate::PipelineForecast forecast;
};

// Returns the fastest pipeline under a schedule that keeps every rank within `memory_limit`. It chooses cuts
// by dynamic programming over the best time of each possible stage within its memory, then each rank's
// strategy along data and recomputed layers, then moves cuts by one layer while the simulated step gets
// shorter. If nothing fits, returns the plan with the least memory. When `wait` ends, returns the best plan
// so far. Throws UsageError if there are fewer layers than stages.
PipelinePlan plan_pipeline(const simulate::PipelineCosts& costs, const std::string& schedule,
                           int micro_batches, int chunks, std::uint64_t memory_limit, const Wait& wait);

// Strategies of a stage along data. A stage keeps its full parameters and gradients from the first
// micro-batch to the last, so only the optimizer's state can be sharded.
inline constexpr cost::Strategy kStageStrategies[] = {cost::Strategy::ddp, cost::Strategy::zero1};

// Restrictions of the mesh search.
struct MeshSearch {
  std::uint64_t samples = 0;  // per step, over all replicas and passes; 0: the profile's batch on each rank
  std::optional<Mesh> mesh = {};  // the only mesh to try
  int micro_batches = 0;          // micro-batches of a pipeline; 0: numbers that fill it
  // Returns why training does not support a mesh, or an empty text if it does. Not set: all are supported.
  std::function<std::string(const Mesh&)> refusal = {};
};

// The plan along data on a mesh without a pipeline, for one rank's part of the model.
struct DataPlan {
  cost::StepModel model;
  PlanResult answer;
};

// A mesh with one shard group or one pipeline schedule, and its result.
struct MeshCandidate {
  Mesh mesh;
  std::uint64_t batch_size = 0;  // per replica and pass
  int shard_group = 0;           // along data; 0 if a pipeline's ranks are sharded all together or not at all
  std::string schedule;          // pipeline schedule, with its micro-batches
  int micro_batches = 1;
  bool fits = false;
  double step_s = 0;                     // only if it fits
  double lower_bound_s = 0;              // lower bound of the step time of every plan of this candidate
  std::uint64_t peak_bytes = 0;          // 0: not evaluated
  std::string why;                       // reason for its rejection; for the best candidate a description
  std::shared_ptr<const DataPlan> data;  // one of these two, if it was evaluated
  std::shared_ptr<const PipelinePlan> pipeline;  // with `layers`
  std::vector<simulate::LayerCost> layers;       // per micro-batch
  // Returns "pipeline=2,data=2 1f1b x 4" or "data=8 shard_group=2".
  std::string name() const;
};

struct MeshPlan {
  // The best candidate first, then the others that fit, by step time, then those that do not fit.
  std::vector<MeshCandidate> candidates;
  double solve_s = 0;
  const MeshCandidate& best() const { return candidates.front(); }  // check its `fits`
};

// Returns all meshes of `ranks` ranks along pipeline, data and one dimension of `dividing` (dimensions that
// divide layers), in the order of kMeshDimensions.
std::vector<Mesh> meshes_of(int ranks, const std::vector<std::string>& dividing = {"tensor"});

// Returns the shape of `mesh` if each replica computes `samples` samples in each of a step's `passes` passes.
simulate::MeshShape mesh_shape(const Mesh& mesh, std::uint64_t samples, int passes);

// Returns the mesh, and the plan on it, with the shortest step within the limit. All candidates train the
// same samples per step. A candidate is skipped if the lower bound of its step is no better than the best
// step so far. options.time_limit is for all candidates together. `step` gives the ranks, the accumulated
// passes of a step, and how collectives are cut. Throws UsageError for a fixed mesh of another number of
// ranks or one that training does not support, and for samples that no mesh divides.
MeshPlan plan_mesh(const cost::Profile& profile, const cost::StepOptions& step, const PlannerOptions& options,
                   const MeshSearch& search);

// Returns the plan as JSON: the format that `rondo plan --json` and `--plan-out` write and `rondo train
// --plan` reads, with `mesh`, `candidates` and, for a pipeline, `pipeline`.
nlohmann::ordered_json mesh_plan_to_json(const cost::Profile& profile, const cost::StepOptions& step,
                                         const MeshPlan& plan, const PlannerOptions& options);

}  // namespace rondo::plan
