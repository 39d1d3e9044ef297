#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/parallel/sharded/sharding.h"

namespace rondo {

// Which strategy each unit of a model has.
class ShardingPlan {
 public:
  // The same for every unit.
  explicit ShardingPlan(Sharding everywhere) : everywhere_(everywhere) {}

  // What `rondo plan` writes: {"units": [{"name": "transformer.h.0", "strategy": "zero3"}, ...]}. Every unit
  // of the model must have an entry. Throws UsageError, naming the entry, for what is not of this form;
  // `source` begins the message.
  static ShardingPlan from_json(const nlohmann::json& plan, const std::string& source);
  // from_json of a file. Throws UsageError when it cannot be read.
  static ShardingPlan read(const std::string& path);
  // Draws a strategy for every unit; the same draw on every rank and machine for a seed.
  static ShardingPlan random(std::uint64_t seed);

  // By unit, in the order of `units`. Throws UsageError naming the units that the plan leaves out, and the
  // entries that name no unit.
  std::vector<Sharding> assign(const std::vector<std::string>& units) const;

 private:
  ShardingPlan() = default;

  Sharding everywhere_ = Sharding::ddp;
  bool is_random_ = false;
  std::uint64_t seed_ = 0;
  std::string source_;                     // of a plan by unit, for messages
  std::map<std::string, Sharding> units_;  // of a plan by unit
};

}  // namespace rondo
