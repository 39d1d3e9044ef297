#include "rondo/server/placement.h"

#include <algorithm>
#include <numeric>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::server {
namespace {

std::uint64_t shard_count(const std::string& text, const std::string& what) {
  const long long shards = parse_integer(text, what);
  if (shards < 1) throw UsageError(str(what, " divides a variable into ", shards, " shards; at least 1"));
  return static_cast<std::uint64_t>(shards);
}

}  // namespace

Partitioner Partitioner::parse(const std::string& text, const std::string& what) {
  const std::vector<std::string> words = split(text, ':');
  const std::string given = str(what, " ", text);
  Partitioner result;
  if (text == "none") return result;
  if (words.size() == 2 && words[0] == "fixed") {
    result.kind = Kind::fixed_shards;
    result.shards = shard_count(words[1], given);
    return result;
  }
  if ((words.size() == 2 || words.size() == 3) && (words[0] == "min-size" || words[0] == "max-size")) {
    result.kind = words[0] == "min-size" ? Kind::min_size : Kind::max_size;
    result.bytes = parse_bytes(words[1], given).count;
    if (result.bytes == 0) throw UsageError(str(given, ": shards need more than 0 bytes"));
    result.shards = words.size() == 3 ? shard_count(words[2], given) : 0;
    return result;
  }
  throw UsageError(
      str(given, " is not none, fixed:SHARDS, min-size:BYTES[:SHARDS] or max-size:BYTES[:SHARDS]"));
}

std::uint64_t Partitioner::shards_of(const VariableSpec& variable) const {
  if (variable.elements() == 0) return 1;
  const std::uint64_t row_bytes = variable.row_elements * sizeof(float);
  std::uint64_t wanted = 1;
  switch (kind) {
    case Kind::none:
      return 1;
    case Kind::fixed_shards:
      return std::min(shards, variable.rows);
    case Kind::min_size:
      wanted = variable.rows * row_bytes / bytes;
      break;
    case Kind::max_size: {
      const std::uint64_t rows = std::max<std::uint64_t>(1, bytes / row_bytes);
      wanted = (variable.rows + rows - 1) / rows;
      break;
    }
  }
  if (shards > 0) wanted = std::min(wanted, shards);
  return std::clamp<std::uint64_t>(wanted, 1, variable.rows);
}

std::vector<std::uint64_t> divide_rows(std::uint64_t rows, std::uint64_t shards) {
  std::vector<std::uint64_t> parts(static_cast<std::size_t>(shards), rows / shards);
  for (std::uint64_t i = 0; i < rows % shards; ++i) ++parts[static_cast<std::size_t>(i)];
  return parts;
}

std::vector<Shard> place(const std::vector<VariableSpec>& variables, std::size_t servers,
                         const Partitioner& partitioner, Placement placement) {
  if (servers == 0) throw UsageError("there is no parameter server to place variables on");
  std::vector<Shard> shards;
  for (std::size_t v = 0; v < variables.size(); ++v) {
    std::uint64_t first = 0;
    for (const std::uint64_t rows : divide_rows(variables[v].rows, partitioner.shards_of(variables[v]))) {
      shards.push_back({.variable = v, .first = first, .rows = rows});
      first += rows;
    }
  }
  if (placement == Placement::round_robin) {
    for (std::size_t i = 0; i < shards.size(); ++i) shards[i].server = i % servers;
  } else {
    const auto size = [&](const Shard& shard) { return shard.rows * variables[shard.variable].row_elements; };
    std::vector<std::size_t> order(shards.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return size(shards[a]) > size(shards[b]); });
    std::vector<std::uint64_t> load(servers, 0);
    for (const std::size_t i : order) {
      shards[i].server = static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
      load[shards[i].server] += size(shards[i]);
    }
  }
  std::vector<std::size_t> numbers(servers, 0);
  for (Shard& shard : shards) shard.number = numbers[shard.server]++;
  return shards;
}

std::vector<VariableSpec> variables_of(const std::vector<VariableSpec>& variables,
                                       const std::vector<Shard>& shards, std::size_t server) {
  std::vector<VariableSpec> result;
  for (const Shard& shard : shards) {
    if (shard.server != server) continue;
    VariableSpec spec = variables[shard.variable];
    if (shard.rows != spec.rows) spec.name = str(spec.name, "/rows_", shard.first);
    spec.rows = shard.rows;
    result.push_back(std::move(spec));
  }
  return result;
}

}  // namespace rondo::server
