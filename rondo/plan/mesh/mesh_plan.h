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

// A layer whose activations may be computed again.
struct Recomputation {
  double seconds = 0;             // that it costs
  std::uint64_t saved_bytes = 0;  // that it saves
};

// Which of them, by number, save at least `need` bytes in the least time: exact, a knapsack over the classes
// of those that save the same. All of them where even these are too few.
std::vector<std::size_t> cheapest_recomputation(const std::vector<Recomputation>& layers, std::uint64_t need);

// A pipeline as it was planned.
struct PipelinePlan {
  simulate::PipelineChoice choice;
  simulate::PipelineForecast forecast;
};

// The fastest pipeline under a schedule that keeps every rank within `memory_limit`: cuts by dynamic
// programming over what each possible stage takes at its best within its memory; for the cuts that come out
// the strategy of each rank along data and the layers that are recomputed; then cuts a layer to the left or
// right, while the simulator says that the step gets shorter. Where nothing fits, what needs least is given
// back. When `wait` ends, the best so far. Throws UsageError for fewer layers than stages.
PipelinePlan plan_pipeline(const simulate::PipelineCosts& costs, const std::string& schedule,
                           int micro_batches, int chunks, std::uint64_t memory_limit, const Wait& wait);

// What stands for a strategy of a stage along data. A stage's parameters and gradients are whole from the
// first micro-batch to the last, so beyond the optimizer's state there is nothing to save.
inline constexpr cost::Strategy kStageStrategies[] = {cost::Strategy::ddp, cost::Strategy::zero1};

// Which meshes are looked at, and for what.
struct MeshSearch {
  std::uint64_t samples = 0;  // of a step, over all replicas and passes; 0: the profile's batch for each rank
  std::optional<Mesh> mesh = {};  // this one only
  int micro_batches = 0;          // of a pipeline so many only; 0: what fills it
  // Why training does not serve a mesh; empty where it does. Not given: all are served.
  std::function<std::string(const Mesh&)> refusal = {};
};

// A mesh without a pipeline: the plan of what one rank of a tensor-parallel group has, along data.
struct DataPlan {
  cost::StepModel model;
  PlanResult answer;
};

// One mesh, one shard group or one schedule on it, and what came out.
struct MeshCandidate {
  Mesh mesh;
  std::uint64_t batch_size = 0;  // of a replica and pass
  int shard_group = 0;   // along data; 0 where a pipeline's ranks are sharded as a whole or not at all
  std::string schedule;  // of a pipeline, with its micro-batches
  int micro_batches = 1;
  bool fits = false;
  double step_s = 0;                             // of what fits
  double lower_bound_s = 0;                      // no plan of this candidate is faster
  std::uint64_t peak_bytes = 0;                  // 0: nobody looked
  std::string why;                               // it was not taken; of the best one what it is
  std::shared_ptr<const DataPlan> data;          // one of these two, where it was looked at
  std::shared_ptr<const PipelinePlan> pipeline;  // with `layers`
  std::vector<simulate::LayerCost> layers;       // of a micro-batch
  // "pipeline=2,data=2 1f1b x 4", "data=8 shard_group=2".
  std::string name() const;
};

struct MeshPlan {
  std::vector<MeshCandidate>
      candidates;  // the best one first, then those that fit by their step, then others
  double solve_s = 0;
  const MeshCandidate& best() const { return candidates.front(); }  // see its `fits`
};

// All ways to lay `ranks` ranks along pipeline, data and one of `dividing`, dimensions that divide layers, in
// the order of kMeshDimensions.
std::vector<Mesh> meshes_of(int ranks, const std::vector<std::string>& dividing = {"tensor"});

// The ranks of `mesh`, of which each replica computes `samples` samples in each of `passes` passes of a step.
simulate::MeshShape mesh_shape(const Mesh& mesh, std::uint64_t samples, int passes);

// Looks for the mesh, and the plan on it, whose step is shortest within the limit. All candidates train the
// same samples in a step. Each has a bound on its step; those whose bound is no better than the best step so
// far are not looked at. options.time_limit is for all together. `step` says the ranks, the passes
// accumulated in a step, and how collectives are cut. Throws UsageError for a fixed mesh of another number of
// ranks, or one that training does not serve, and for samples that no mesh divides.
MeshPlan plan_mesh(const cost::Profile& profile, const cost::StepOptions& step, const PlannerOptions& options,
                   const MeshSearch& search);

// The plan as `rondo plan --json` and `--plan-out` write it and `rondo train --plan` reads it, with `mesh`,
// `candidates` and, of a pipeline, `pipeline`.
nlohmann::ordered_json mesh_plan_to_json(const cost::Profile& profile, const cost::StepOptions& step,
                                         const MeshPlan& plan, const PlannerOptions& options);

}  // namespace rondo::plan
