#include "rondo/format/report/memory_peaks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/file.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

MemoryPeakRecord record_of(const Json& json) {
  MemoryPeakRecord record;
  record.rank = json.at("rank");
  record.bytes = json.at("peak_bytes");
  record.step = json.at("step");
  record.phase = json.at("phase");
  record.unit = json.at("unit");
  for (const Json& unit : json.at("units")) {
    MemoryPeakRecord::Unit& added = record.units.emplace_back();
    added.name = unit.at("name");
    for (const auto& [category, bytes] : unit.at("categories").items()) {
      added.categories.emplace_back(category, bytes.get<std::uint64_t>());
    }
  }
  return record;
}

}  // namespace

std::vector<MemoryPeakRecord> read_memory_peaks(const std::filesystem::path& path) {
  std::vector<MemoryPeakRecord> records;
  try {
    const Json document = Json::parse(read_text_file(path));
    for (const Json& rank : document.at("ranks")) records.push_back(record_of(rank));
  } catch (const Json::exception& e) {
    throw DataError(str(path.string(), ": ", e.what()));
  }
  std::stable_sort(records.begin(), records.end(),
                   [](const MemoryPeakRecord& a, const MemoryPeakRecord& b) { return a.rank < b.rank; });
  return records;
}

}  // namespace rondo
