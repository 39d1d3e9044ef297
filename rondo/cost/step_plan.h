#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/cost/step_model.h"
#include "rondo/cost/strategy.h"

namespace rondo::cost {

// The planned choice of one unit.
struct PlannedUnit {
  std::string name;
  UnitChoice choice;
  std::optional<std::uint64_t> parameter_bytes;  // size that the plan was made for
};

// A segment of a collective, and the slot (step_model.h) at whose start it joins the link's queue.
struct PlannedSegment {
  JobKind purpose = JobKind::all_reduce;
  std::size_t unit = 0;  // number in StepPlan::units
  int micro_batch = 0;
  int slot = 0;
  std::uint64_t bytes = 0;
  bool operator==(const PlannedSegment&) const = default;
};

// A slot that must wait for a segment's completion, because it needs the memory of that segment's gradients.
struct PlannedWait {
  int slot = 0;
  std::size_t segment = 0;  // number in StepPlan::segments
};

// Launch order of all segments, and the conditions that the plan was made for.
struct PlannedSchedule {
  int shard_group = 0;
  int micro_batches = 1;
  std::uint64_t batch_size = 1;
  std::string profile_hash;
  std::uint64_t memory_limit_bytes = 0;
  std::vector<PlannedSegment> segments;  // in the order of the link's queue
  std::vector<PlannedWait> waits;
};

// Pipeline stages of each replica, as strategy "pipeline" takes them.
struct PlannedPipeline {
  std::string schedule;  // "1f1b"
  int micro_batches = 1;
  int chunks = 2;
  std::vector<std::string> stage_cuts;  // first layer of every stage except the first
  std::vector<Strategy> strategies;     // along data, by rank of the pipeline
};

// A planned training step. It passes from the planner to training directly or through a file. A file is
// either the output of `rondo plan` or a hand-written short form that only has each unit's strategy:
// {"units": [{"name": "transformer.h.0", "strategy": "zero3"}, ...]}.
struct StepPlan {
  std::string source = {};                       // source for messages: "plan plan.json"
  std::string model = {};                        // empty: any
  int ranks = 0;                                 // 0: any number
  std::vector<PlannedUnit> units = {};           // in forward order
  std::optional<PlannedSchedule> schedule = {};  // empty in the short form
  std::string mesh = {};                         // "pipeline=2,data=2"; empty: all ranks along data
  std::optional<PlannedPipeline> pipeline = {};  // if the mesh has a pipeline dimension
  std::string hash = {};  // hash of everything that decides how training runs; set by parse_step_plan()

  // Returns the unit of this name, or null.
  const PlannedUnit* find(const std::string& unit) const;
  int micro_batches() const { return schedule ? schedule->micro_batches : 1; }
};

// Parses either form. Throws DataError that names any field that is missing, unknown, impossible or of the
// wrong type, and for a plan that is not feasible. `what`, its source, begins the message.
StepPlan parse_step_plan(const nlohmann::ordered_json& json, const std::string& what);
// Reads a plan file without checking the plan. Throws UsageError if it cannot be read, DataError unless it is
// JSON.
nlohmann::ordered_json read_plan_json(const std::string& path);
// Reads and parses a plan file; see parse_step_plan().
StepPlan read_step_plan(const std::string& path);

}  // namespace rondo::cost
