#include "rondo/format/report/memory_peaks.h"

#include <algorithm>
#include <climits>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

MemoryPeakRecord record_of(const Json& json) {
  MemoryPeakRecord record;
  record.rank = static_cast<int>(json_integer(json.at("rank"), "rank", 0, INT_MAX));
  record.bytes = static_cast<std::uint64_t>(json_integer(json.at("peak_bytes"), "peak_bytes", 0));
  record.step = json_integer(json.at("step"), "step");
  record.phase = json.at("phase");
  record.unit = json.at("unit");
  for (const Json& unit : json.at("units")) {
    MemoryPeakRecord::Unit& added = record.units.emplace_back();
    added.name = unit.at("name");
    for (const auto& [category, bytes] : unit.at("categories").items()) {
      added.categories.emplace_back(category, static_cast<std::uint64_t>(json_integer(bytes, category, 0)));
    }
  }
  return record;
}

}  // namespace

std::vector<MemoryPeakRecord> read_memory_peaks(const std::filesystem::path& path) {
  std::vector<MemoryPeakRecord> records;
  try {
    const Json document = read_json_file(path);
    for (const Json& rank : document.at("ranks")) records.push_back(record_of(rank));
  } catch (const Json::exception& e) {
    throw DataError(str(path.string(), ": ", json_problem(e)));
  }
  std::stable_sort(records.begin(), records.end(),
                   [](const MemoryPeakRecord& a, const MemoryPeakRecord& b) { return a.rank < b.rank; });
  return records;
}

}  // namespace rondo
