#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/plan/solver/solver.h"
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

}  // namespace rondo::plan
