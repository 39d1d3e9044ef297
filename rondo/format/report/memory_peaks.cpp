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

std::uint64_t bytes_of(const Json& value, const std::string& place) {
  return static_cast<std::uint64_t>(json_integer(value, place, 0));
}

MemoryPeakRecord record_of(const Json& json, const std::string& where) {
  const auto text = [&](const char* key) {
    return json_text(json_member(json, key, where), json_place(where, key));
  };
  MemoryPeakRecord record;
  record.rank =
      static_cast<int>(json_integer(json_member(json, "rank", where), json_place(where, "rank"), 0, INT_MAX));
  record.bytes = bytes_of(json_member(json, "peak_bytes", where), json_place(where, "peak_bytes"));
  record.step = json_integer(json_member(json, "step", where), json_place(where, "step"));
  record.phase = text("phase");
  record.unit = text("unit");
  for (const Json& unit : json_list(json_member(json, "units", where), json_place(where, "units"))) {
    const std::string of_unit = str(where, ", unit ", record.units.size());
    MemoryPeakRecord::Unit& added = record.units.emplace_back();
    added.name = json_text(json_member(unit, "name", of_unit), json_place(of_unit, "name"));
    const Json& categories = json_member(unit, "categories", of_unit);
    for (const auto& [category, bytes] : json_object(categories, json_place(of_unit, "categories")).items())
      added.categories.emplace_back(category, bytes_of(bytes, json_place(of_unit, category)));
  }
  return record;
}

}  // namespace

std::vector<MemoryPeakRecord> read_memory_peaks(const std::filesystem::path& path) {
  const std::string file = path.string();
  const Json document = read_json_file(path);
  std::vector<MemoryPeakRecord> records;
  for (const Json& rank : json_list(json_member(document, "ranks", file), json_place(file, "ranks")))
    records.push_back(record_of(rank, str(file, ": entry ", records.size(), " of \"ranks\"")));
  std::stable_sort(records.begin(), records.end(),
                   [](const MemoryPeakRecord& a, const MemoryPeakRecord& b) { return a.rank < b.rank; });
  return records;
}

}  // namespace rondo
