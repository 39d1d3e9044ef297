#include "rondo/format/metrics.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kValidationPrefix = "validation_";

// Calls visit(key, field) for every optional number of a row, in the order of the file.
template <class Row, class Visit>
void visit_fields(Row& row, const Visit& visit) {
  visit("loss", row.loss);
  visit("validation_loss", row.validation_loss);
  visit("accuracy", row.accuracy);
  visit("validation_accuracy", row.validation_accuracy);
  visit("learning_rate", row.learning_rate);
  visit("loss_scale", row.loss_scale);
  visit("tokens_per_s", row.tokens_per_s);
  visit("samples_per_s", row.samples_per_s);
  visit("step_ms", row.step_ms);
  visit("compute_ms", row.compute_ms);
  visit("comm_ms", row.comm_ms);
  visit("exposed_comm_ms", row.exposed_comm_ms);
  visit("peak_bytes", row.peak_bytes);
  visit("peak_rss_bytes", row.peak_rss_bytes);
  visit("peak_pss_bytes", row.peak_pss_bytes);
  visit("steps", row.steps);
  visit("smallest_loss", row.smallest_loss);
  visit("largest_loss", row.largest_loss);
  visit("largest_step_ms", row.largest_step_ms);
}

template <class Value>
Value number_of(const Json& json, const char* key) {
  if (!json.is_number()) throw DataError(str("\"", key, "\" is not a number"));
  if constexpr (std::is_floating_point_v<Value>) {
    return json.get<Value>();
  } else {
    constexpr std::int64_t exact = std::int64_t{1} << 53;  // every language's numbers hold these
    constexpr std::int64_t most = std::in_range<Value>(exact) ? exact : std::numeric_limits<Value>::max();
    return static_cast<Value>(json_integer(json, str("\"", key, "\""), 0, most));
  }
}

template <class Value>
Value required(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) throw DataError(str("\"", key, "\" is missing"));
  return number_of<Value>(*found, key);
}

template <class Value>
void read_optional(const Json& json, const char* key, std::optional<Value>& field) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  if (found->is_number()) {
    field = number_of<Value>(*found, key);
  } else if (found->is_null() && std::is_floating_point_v<Value>) {
    field = std::numeric_limits<Value>::quiet_NaN();
  } else {
    throw DataError(str("\"", key, "\" is not a number"));
  }
}

MetricsRow parse_row(const Json& json) {
  if (!json.is_object()) throw DataError("not an object");
  MetricsRow row;
  row.step = required<std::int64_t>(json, "step");
  row.rank = json.contains("rank") ? required<int>(json, "rank") : 0;
  row.epoch = json.contains("epoch") ? required<std::int64_t>(json, "epoch") : 0;
  row.elapsed_s = json.contains("elapsed_s") ? required<double>(json, "elapsed_s") : 0.0;
  std::set<std::string, std::less<>> known = {"rank", "step", "epoch", "elapsed_s"};
  visit_fields(row, [&](const char* key, auto& field) {
    read_optional(json, key, field);
    known.insert(key);
  });
  for (const auto& [key, value] : json.items()) {
    if (known.contains(key)) continue;
    if (value.is_number()) row.others[key] = value.get<double>();
    if (value.is_null()) row.others[key] = std::numeric_limits<double>::quiet_NaN();
  }
  return row;
}

bool ends_inside_a_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

}  // namespace

MetricsRow validation_row(std::int64_t step, const std::map<std::string, double>& figures) {
  MetricsRow row;
  row.step = step;
  for (const auto& [metric, value] : figures) {
    if (metric == "loss") {
      row.validation_loss = value;
    } else if (metric == "accuracy") {
      row.validation_accuracy = value;
    } else {
      row.others[std::string(kValidationPrefix) + metric] = value;
    }
  }
  return row;
}

bool MetricsRow::is_validation() const {
  const auto is_of_validation = [](const auto& entry) { return entry.first.starts_with(kValidationPrefix); };
  return validation_loss || validation_accuracy ||
         std::any_of(others.begin(), others.end(), is_of_validation);
}

std::string to_json_line(const MetricsRow& row) {
  Json json{{"rank", row.rank}, {"step", row.step}, {"epoch", row.epoch}, {"elapsed_s", row.elapsed_s}};
  visit_fields(row, [&](const char* key, const auto& field) {
    if (field) json[key] = *field;  // the library writes NaN and infinities as null
  });
  for (const auto& [key, value] : row.others) json[key] = value;
  return json.dump();
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path) : file_(path, OutputFile::Mode::append) {
  if (ends_inside_a_line(path)) file_.write("\n");
}

void MetricsWriter::append(std::span<const MetricsRow> rows) {
  std::string text;
  for (const MetricsRow& row : rows) text += to_json_line(row) + "\n";
  if (text.empty()) return;
  std::error_code unknown;
  const std::uintmax_t before = std::filesystem::file_size(file_.path(), unknown);
  try {
    file_.write(text);
  } catch (const Error&) {
    if (!unknown) std::filesystem::resize_file(file_.path(), before, unknown);
    throw;
  }
}

std::optional<MetricsRow> parse_metrics_line(std::string_view line) {
  line = trim(line);
  if (line.empty()) return std::nullopt;
  return parse_row(parse_json_strict(line, "line"));
}

MetricsFile read_metrics(const std::filesystem::path& path) {
  MetricsFile result;
  const MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  for (int number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    try {
      if (auto row = parse_metrics_line(line)) result.rows.push_back(std::move(*row));
    } catch (const std::exception& e) {
      result.problems.push_back(str(path.filename().string(), ":", number, ": ", e.what()));
    }
  }
  return result;
}

}  // namespace rondo
