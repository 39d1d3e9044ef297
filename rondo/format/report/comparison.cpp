#include "rondo/format/report/comparison.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "rondo/base/text.h"
#include "rondo/format/report/document.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

// The last `parts` parts of each path; more of them until all differ.
std::vector<std::string> distinct_names(std::span<const RunData> runs) {
  for (std::ptrdiff_t parts = 1;; ++parts) {
    std::vector<std::string> names;
    bool whole = true;
    for (const RunData& run : runs) {
      const std::filesystem::path path = std::filesystem::weakly_canonical(run.directory);
      const auto length = std::distance(path.begin(), path.end());
      std::filesystem::path name;
      for (auto part = std::next(path.begin(), std::max<std::ptrdiff_t>(0, length - parts));
           part != path.end(); ++part)
        name /= *part;
      names.push_back(name.string());
      whole = whole && parts >= length;
    }
    if (whole || std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
  }
}

Json differences(const std::vector<Json>& configurations) {
  std::vector<std::string> keys;  // in the order in which they come
  std::set<std::string> known;
  std::vector<std::map<std::string, std::string>> values;
  for (const Json& configuration : configurations) {
    values.emplace_back();
    for (const Json& entry : configuration) {
      const auto key = entry[0].get<std::string>();
      if (known.insert(key).second) keys.push_back(key);
      values.back()[key] = entry[1].get<std::string>();
    }
  }
  Json rows = Json::array();
  for (const std::string& key : keys) {
    Json row{key};
    bool differ = false;
    for (const auto& own : values) {
      const auto found = own.find(key);
      row.push_back(found == own.end() ? Json() : Json(found->second));
      differ = differ || row.back() != row[1];
    }
    if (differ) rows.push_back(std::move(row));
  }
  return rows;
}

// Throughput per rank next to that of the run with the fewest ranks, where runs differ in ranks.
void add_scaling_efficiency(Json& runs) {
  const Json* fewest = nullptr;
  bool differ = false;
  for (const Json& run : runs) {
    const Json& summary = run["summary"];
    if (summary["rate"].is_null() || summary["ranks"] == 0) continue;
    if (fewest != nullptr) differ = differ || (*fewest)["ranks"] != summary["ranks"];
    if (fewest == nullptr || summary["ranks"] < (*fewest)["ranks"]) fewest = &summary;
  }
  if (!differ) return;
  const auto rate_per_rank = [](const Json& summary) {
    return summary["rate"].get<double>() / summary["ranks"].get<double>();
  };
  const double best = rate_per_rank(*fewest);
  const Json unit = (*fewest)["rate_unit"];
  for (Json& run : runs) {
    Json& summary = run["summary"];
    const bool known = !summary["rate"].is_null() && summary["rate_unit"] == unit && best > 0;
    summary["scaling_efficiency"] = known ? Json(rate_per_rank(summary) / best) : Json();
  }
}

}  // namespace

Json comparison_document(std::span<const RunData> runs) {
  const std::vector<std::string> names = distinct_names(runs);
  Json shown = Json::array();
  Json notes = Json::array();
  std::vector<Json> configurations;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Json document = report_document(runs[i]);
    const Json& curves = document["curves"];
    shown.push_back({{"name", names[i]},
                     {"strategy", runs[i].starts.empty() ? "" : runs[i].starts.back().strategy},
                     {"command", runs[i].starts.empty() ? "" : runs[i].starts.back().made.command},
                     {"summary", document["summary"]},
                     {"curves",
                      {{"loss", curves["loss"]},
                       {"validation_loss", curves["validation_loss"]},
                       {"rate", curves["rate"]}}}});
    for (const Json& note : document["notes"]) notes.push_back(str(names[i], ": ", note.get<std::string>()));
    configurations.push_back(document["config"]);
  }
  add_scaling_efficiency(shown);
  return {{"title", join(names, ", ")},
          {"comparison", {{"runs", std::move(shown)}, {"differences", differences(configurations)}}},
          {"notes", std::move(notes)}};
}

}  // namespace rondo
