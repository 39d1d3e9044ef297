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

// One block of a collective, and the slot (slots.h) at whose start it joins the link's queue.
struct PlannedBlock {
  JobKind purpose = JobKind::all_reduce;
  std::size_t unit = 0;  // number in PlanFile::units
  int micro_batch = 0;
  int slot = 0;
  std::uint64_t bytes = 0;
};

// A slot that may begin only when a block is through, because it needs the memory of that block's gradients.
struct PlannedWait {
  int slot = 0;
  std::size_t block = 0;  // number in PlanFile::blocks
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

// A plan as training takes it: what `rondo plan` writes, or the short form that a hand writes, which says
// only what each unit does: {"units": [{"name": "transformer.h.0", "strategy": "zero3"}, ...]}.
struct PlanFile {
  std::string model;                        // empty: any
  int ranks = 0;                            // 0: any number
  std::vector<PlannedUnit> units;           // in the order of forward
  std::optional<PlannedSchedule> schedule;  // empty in the short form
  std::string hash;                         // of everything that decides how training runs
};

// Reads either form. Throws DataError that names the field for what is missing, unknown, of another type or
// impossible, and for a plan that is not feasible. `what` begins the message.
PlanFile parse_plan_file(const nlohmann::ordered_json& json, const std::string& what);
// What is in a plan file, as yet unchecked. Throws UsageError when it cannot be read, DataError unless it is
// JSON.
nlohmann::ordered_json read_plan_json(const std::string& path);
// parse_plan_file of it.
PlanFile read_plan_file(const std::string& path);

}  // namespace rondo::cost
