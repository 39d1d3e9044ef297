#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/cost/plan_file.h"
#include "rondo/parallel/sharded/sharding.h"

namespace rondo {

// What a plan must know of a unit of the model.
struct UnitSize {
  std::string name;
  std::uint64_t parameter_bytes = 0;
};

// Which strategy each unit of a model has, and, from a plan file, which units are checkpointed and when
// blocks go out.
class ShardingPlan {
 public:
  // The same for every unit.
  explicit ShardingPlan(Sharding everywhere) : everywhere_(everywhere) {}
  // A plan for a model, from anywhere; `source` begins messages about it.
  ShardingPlan(cost::PlanFile file, std::string source)
      : source_(std::move(source)), file_(std::move(file)) {}

  // Draws a strategy for every unit; the same draw on every rank and machine for a seed.
  static ShardingPlan random(std::uint64_t seed);

  // By unit, in the order of `units`. Throws UsageError naming what does not fit and what to do: a plan for
  // another number of ranks, units that it leaves out, entries that name no unit, a unit that has another
  // size in the model.
  std::vector<Sharding> assign(const std::vector<UnitSize>& units, int ranks) const;

  // Whether strategies are drawn.
  bool is_random() const { return is_random_; }
  // Passes of one step that the plan communicates in; 1 where it says nothing.
  int micro_batches() const { return file_ && file_->schedule ? file_->schedule->micro_batches : 1; }
  // The file, if it is from one.
  const cost::PlanFile* file() const { return file_ ? &*file_ : nullptr; }
  const std::string& source() const { return source_; }

 private:
  ShardingPlan() = default;
  std::vector<Sharding> assign_from_file(const std::vector<UnitSize>& units, int ranks) const;

  Sharding everywhere_ = Sharding::ddp;
  bool is_random_ = false;
  std::uint64_t seed_ = 0;
  std::string source_;
  std::optional<cost::PlanFile> file_;
};

}  // namespace rondo
