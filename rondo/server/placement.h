#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/server/memory.h"

namespace rondo::server {

// Division of large variables along their first dimension; TensorFlow's three partitioners.
struct Partitioner {
  enum class Kind { none, fixed_shards, min_size, max_size };
  Kind kind = Kind::none;
  std::uint64_t shards = 1;  // fixed_shards: number; min_size, max_size: maximum number, 0: unlimited
  std::uint64_t bytes = 0;   // min_size: minimum bytes of a shard; max_size: maximum

  // Parses "none", "fixed:4", "min-size:256KiB[:4]" (at most 4) or "max-size:1MiB[:4]". Throws UsageError
  // naming `what`, also for zero shards.
  static Partitioner parse(const std::string& text, const std::string& what);
  // Returns the number of shards of a variable; at most one per row.
  std::uint64_t shards_of(const VariableSpec& variable) const;
};

enum class Placement { round_robin, by_size };

// Rows [first, first + rows) of a model's variable, stored as variable `number` of a server.
struct Shard {
  std::size_t variable = 0;
  std::size_t server = 0;
  std::size_t number = 0;
  std::uint64_t first = 0;
  std::uint64_t rows = 0;
};

// Divides rows into shards. The first shards have one row more if the division has a remainder: 13 / 5 gives
// 3, 3, 3, 2, 2.
std::vector<std::uint64_t> divide_rows(std::uint64_t rows, std::uint64_t shards);

// Assigns shards to servers. Returns the shards in order of variables and rows. Deterministic for equal
// variables. by_size: the largest shard first, each to the server with the smallest load.
std::vector<Shard> place(const std::vector<VariableSpec>& variables, std::size_t servers,
                         const Partitioner& partitioner, Placement placement);

// Returns the variables of server `server`, by number.
std::vector<VariableSpec> variables_of(const std::vector<VariableSpec>& variables,
                                       const std::vector<Shard>& shards, std::size_t server);

}  // namespace rondo::server
