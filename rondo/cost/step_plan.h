#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/cost/step_model.h"
#include "rondo/cost/strategy.h"

namespace rondo::cost {

// What a plan decides for one unit.
struct PlannedUnit {
  std::string name;
  UnitChoice choice;
  std::optional<std::uint64_t> parameter_bytes;  // that it was planned for
};

// One block of a collective, and the slot (step_model.h) at whose start it joins the link's queue.
struct PlannedBlock {
  JobKind purpose = JobKind::all_reduce;
  std::size_t unit = 0;  // number in StepPlan::units
  int micro_batch = 0;
  int slot = 0;
  std::uint64_t bytes = 0;
  bool operator==(const PlannedBlock&) const = default;
};

// A slot that may begin only when a block is through, because it needs the memory of that block's gradients.
struct PlannedWait {
  int slot = 0;
  std::size_t block = 0;  // number in StepPlan::blocks
};

// When blocks go out, and what the plan was made for and expects.
struct PlannedSchedule {
  int shard_group = 0;
  int micro_batches = 1;
  std::uint64_t batch_size = 1;
  std::string profile_hash;
  std::uint64_t memory_limit_bytes = 0;
  std::vector<PlannedBlock> blocks;  // in the order of the link's queue
  std::vector<PlannedWait> waits;
};

// How a plan cuts each replica into stages, as strategy "pipeline" takes it.
struct PlannedPipeline {
  std::string schedule;  // "1f1b"
  int micro_batches = 1;
  int chunks = 2;
  std::vector<std::string> stage_cuts;  // first layer of every stage but the first
  std::vector<Strategy> strategies;     // along data, by rank of the pipeline
};

// A planned training step, from the planner through a file or not to training: what `rondo plan` writes, or
// the short form that a hand writes, which says only what each unit does: {"units": [{"name":
// "transformer.h.0", "strategy": "zero3"}, ...]}.
struct StepPlan {
  std::string source = {};                       // where it is from, for messages: "plan plan.json"
  std::string model = {};                        // empty: any
  int ranks = 0;                                 // 0: any number
  std::vector<PlannedUnit> units = {};           // in the order of forward
  std::optional<PlannedSchedule> schedule = {};  // empty in the short form
  std::string mesh = {};                         // "pipeline=2,data=2"; empty: all ranks along data
  std::optional<PlannedPipeline> pipeline = {};  // where the mesh has one
  std::string hash = {};                         // of everything that decides how training runs; of one read

  // The unit of this name; null when there is none.
  const PlannedUnit* find(const std::string& unit) const;
  int micro_batches() const { return schedule ? schedule->micro_batches : 1; }
};

// Reads either form. Throws DataError that names the field for what is missing, unknown, of another type or
// impossible, and for a plan that is not feasible. `what`, its source, begins the message.
StepPlan parse_step_plan(const nlohmann::ordered_json& json, const std::string& what);
// What is in a plan file, as yet unchecked. Throws UsageError when it cannot be read, DataError unless it is
// JSON.
nlohmann::ordered_json read_plan_json(const std::string& path);
// parse_step_plan of it.
StepPlan read_step_plan(const std::string& path);

}  // namespace rondo::cost
