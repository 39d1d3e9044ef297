#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/server/memory.h"

namespace rondo::server {

// How large variables are divided along their first dimension; TensorFlow's three.
struct Partitioner {
  enum class Kind { none, fixed_shards, min_size, max_size };
  Kind kind = Kind::none;
  std::uint64_t shards = 1;  // fixed_shards; of min_size and max_size the most, 0 for any number
  std::uint64_t bytes = 0;   // min_size: the least of a shard, max_size: the most

  // "none", "fixed:4", "min-size:256KiB[:4]" (at most 4), "max-size:1MiB[:4]". Throws UsageError naming
  // `what`, also for zero shards.
  static Partitioner parse(const std::string& text, const std::string& what);
  // Shards of a variable; at most one a row.
  std::uint64_t shards_of(const VariableSpec& variable) const;
};

enum class Placement { round_robin, by_size };

// Rows [first, first + rows) of a variable of the model, as variable `number` of a server.
struct Shard {
  std::size_t variable = 0;
  std::size_t server = 0;
  std::size_t number = 0;
  std::uint64_t first = 0;
  std::uint64_t rows = 0;
};

// The first rows of `rows` are those that do not divide: 13 over 5 are 3, 3, 3, 2, 2.
std::vector<std::uint64_t> divide_rows(std::uint64_t rows, std::uint64_t shards);

// Where each variable lies: the shards of a variable in order, variables in order. The same everywhere for
// the same variables. By size: the largest first, each to the server that has least.
std::vector<Shard> place(const std::vector<VariableSpec>& variables, std::size_t servers,
                         const Partitioner& partitioner, Placement placement);

// What server `server` gets, by number.
std::vector<VariableSpec> variables_of(const std::vector<VariableSpec>& variables,
                                       const std::vector<Shard>& shards, std::size_t server);

}  // namespace rondo::server
