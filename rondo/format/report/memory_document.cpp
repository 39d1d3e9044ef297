#include "rondo/format/report/memory_document.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "rondo/base/text.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kUnitsDrawn = 30;
constexpr std::size_t kCategoriesDrawn = 30;

// In the order of their first appearance: counters and memory.json have all of them. Of very many, which
// rondo does not write, the last drawn one is the sum of all others, so that a file's values are not drawn
// once for each name.
struct Categories {
  std::vector<std::string> names;                       // that are drawn
  std::unordered_map<std::string, std::size_t> places;  // of all, in `names`
};

Categories categories_of(const RunData& run) {
  Categories categories;
  std::size_t left_out = 0;
  const auto add = [&](const std::string& name) {
    const std::size_t next = std::min(categories.names.size(), kCategoriesDrawn);
    if (!categories.places.emplace(name, next).second) return;
    if (next < kCategoriesDrawn) {
      categories.names.push_back(name);
    } else {
      ++left_out;
    }
  };
  for (const Trace::Counter& sample : run.memory_samples) {
    for (const auto& [name, bytes] : sample.counter.values) add(name);
  }
  for (const MemoryPeakRecord& peak : run.memory_peaks) {
    for (const MemoryPeakRecord::Unit& unit : peak.units) {
      for (const auto& [name, bytes] : unit.categories) add(name);
    }
  }
  if (left_out > 0) categories.names.push_back(str(left_out, " more"));
  return categories;
}

template <class Pairs>
std::vector<std::uint64_t> in_order(const Pairs& values, const Categories& categories) {
  std::vector<std::uint64_t> bytes(categories.names.size(), 0);
  for (const auto& [name, value] : values) bytes[categories.places.at(name)] += value;
  return bytes;
}

Json timelines(const RunData& run, const Categories& categories) {
  std::map<int, std::vector<const TraceCounter*>> by_rank;
  for (const Trace::Counter& sample : run.memory_samples) by_rank[sample.rank].push_back(&sample.counter);
  Json result = Json::array();
  for (const auto& [rank, samples] : by_rank) {
    Json points = Json::array();
    std::uint64_t peak = 0;
    for (const TraceCounter* sample : samples) {
      const std::vector<std::uint64_t> bytes = in_order(sample->values, categories);
      peak = std::max(peak, std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}));
      Json point{static_cast<double>(sample->time_ns - samples.front()->time_ns) * 1e-6};
      for (const std::uint64_t value : bytes) point.push_back(value);
      points.push_back(std::move(point));
    }
    result.push_back({{"rank", rank}, {"peak", peak}, {"samples", std::move(points)}});
  }
  return result;
}

Json units_json(const MemoryPeakRecord& peak, const Categories& categories) {
  struct Row {
    std::string name;
    std::vector<std::uint64_t> bytes;
    std::uint64_t total;
  };
  std::vector<Row> rows;
  for (const MemoryPeakRecord::Unit& unit : peak.units) {
    std::vector<std::uint64_t> bytes = in_order(unit.categories, categories);
    const std::uint64_t total = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
    rows.push_back({unit.name, std::move(bytes), total});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.total > b.total; });
  if (rows.size() > kUnitsDrawn) {
    const std::size_t width = categories.names.size();
    Row rest{str(rows.size() - kUnitsDrawn, " more"), std::vector<std::uint64_t>(width, 0), 0};
    for (std::size_t i = kUnitsDrawn; i < rows.size(); ++i) {
      for (std::size_t c = 0; c < width; ++c) rest.bytes[c] += rows[i].bytes[c];
    }
    rows.resize(kUnitsDrawn);
    rows.push_back(std::move(rest));
  }
  Json result = Json::array();
  for (const Row& row : rows) {
    Json entry{row.name};
    for (const std::uint64_t value : row.bytes) entry.push_back(value);
    result.push_back(std::move(entry));
  }
  return result;
}

}  // namespace

Json memory_document(const RunData& run) {
  const Categories categories = categories_of(run);
  Json peaks = Json::array();
  for (const MemoryPeakRecord& peak : run.memory_peaks) {
    peaks.push_back({{"rank", peak.rank},
                     {"bytes", peak.bytes},
                     {"step", peak.step},
                     {"phase", peak.phase},
                     {"unit", peak.unit},
                     {"units", units_json(peak, categories)}});
  }
  Json step = nullptr;
  if (!run.memory_samples.empty() && run.memory_samples.front().counter.step)
    step = *run.memory_samples.front().counter.step;
  return {{"categories", categories.names},
          {"step", std::move(step)},
          {"timelines", timelines(run, categories)},
          {"peaks", std::move(peaks)}};
}

}  // namespace rondo
