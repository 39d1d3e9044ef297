#include "rondo/format/metrics.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

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
}

template <class Value>
Value required(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number())
    throw DataError(str("\"", key, "\" is missing or not a number"));
  return found->get<Value>();
}

template <class Value>
void read_optional(const Json& json, const char* key, std::optional<Value>& field) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  if (found->is_number()) {
    field = found->get<Value>();
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
  visit_fields(row, [&](const char* key, auto& field) { read_optional(json, key, field); });
  return row;
}

bool ends_inside_a_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

}  // namespace

std::string to_json_line(const MetricsRow& row) {
  Json json{{"rank", row.rank}, {"step", row.step}, {"epoch", row.epoch}, {"elapsed_s", row.elapsed_s}};
  visit_fields(row, [&](const char* key, const auto& field) {
    if (field) json[key] = *field;  // the library writes NaN and infinities as null
  });
  return json.dump();
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path) : file_(path, OutputFile::Mode::append) {
  if (ends_inside_a_line(path)) file_.write("\n");
}

void MetricsWriter::append(const MetricsRow& row) { file_.write(to_json_line(row) + "\n"); }

MetricsFile read_metrics(const std::filesystem::path& path) {
  MetricsFile result;
  const MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  for (int number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trim(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) continue;
    try {
      result.rows.push_back(parse_row(Json::parse(line)));
    } catch (const std::exception& e) {
      result.problems.push_back(str(path.filename().string(), ":", number, ": ", e.what()));
    }
  }
  return result;
}

}  // namespace rondo
