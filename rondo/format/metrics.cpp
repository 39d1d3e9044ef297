#include "rondo/format/metrics.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kValidationPrefix = "validation_";

// Calls visit(key, field) for every optional number of a row, in file order.
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
    constexpr std::int64_t exact = std::int64_t{1} << 53;  // numbers of all languages represent these exactly
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
      result.has_partial_line = rest.empty() && file.bytes().back() != std::byte{'\n'};
    }
  }
  return result;
}

MetricsTail::News MetricsTail::read() {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) return {};
  // A pipe has size 0 and would look like a run without steps.
  if (!S_ISREG(now.st_mode)) {
    throw DataError(str("cannot read ", path_.string(), ": it is ", kind_of_file(now.st_mode),
                        ", expected a regular file"));
  }
  News news;
  if (now.st_ino != inode_ || static_cast<std::uint64_t>(now.st_size) < read_bytes_) {
    news.from_the_start = inode_ != 0;
    inode_ = now.st_ino;
    read_bytes_ = 0;
  }
  if (static_cast<std::uint64_t>(now.st_size) == read_bytes_) return news;
  const MappedFile file(path_);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  rest.remove_prefix(std::min<std::size_t>(read_bytes_, rest.size()));
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    try {
      if (auto row = parse_metrics_line(rest.substr(0, end))) news.rows.push_back(std::move(*row));
    } catch (const std::exception&) {
      // Ignores damaged lines, which `rondo report` lists: a viewer of a running training needs the next row.
    }
    rest.remove_prefix(end + 1);
    read_bytes_ += end + 1;
  }
  return news;
}

namespace {

template <class Value>
std::optional<Value> larger(const std::optional<Value>& a, const std::optional<Value>& b) {
  if (!a || !b) return a ? a : b;
  if constexpr (std::is_floating_point_v<Value>) {
    if (!std::isfinite(*a)) return a;
    if (!std::isfinite(*b)) return b;
  }
  return std::max(*a, *b);
}

std::optional<double> smaller(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a || !b) return a ? a : b;
  if (!std::isfinite(*a)) return b;
  if (!std::isfinite(*b)) return a;
  return std::min(*a, *b);
}

const std::optional<double>& either(const std::optional<double>& first, const std::optional<double>& second) {
  return first ? first : second;
}

}  // namespace

MetricsRow joined_rows(const MetricsRow& earlier, const MetricsRow& later) {
  MetricsRow row = later;
  const auto before = static_cast<double>(earlier.steps.value_or(1));
  const auto after = static_cast<double>(later.steps.value_or(1));
  row.steps = earlier.steps.value_or(1) + later.steps.value_or(1);
  row.smallest_loss =
      smaller(either(earlier.smallest_loss, earlier.loss), either(later.smallest_loss, later.loss));
  row.largest_loss =
      larger(either(earlier.largest_loss, earlier.loss), either(later.largest_loss, later.loss));
  row.largest_step_ms =
      larger(either(earlier.largest_step_ms, earlier.step_ms), either(later.largest_step_ms, later.step_ms));
  for (const auto field : {&MetricsRow::tokens_per_s, &MetricsRow::samples_per_s, &MetricsRow::step_ms,
                           &MetricsRow::compute_ms, &MetricsRow::comm_ms, &MetricsRow::exposed_comm_ms}) {
    if (earlier.*field && later.*field) {
      row.*field = (*(earlier.*field) * before + *(later.*field) * after) / (before + after);
    } else {
      row.*field = either(later.*field, earlier.*field);
    }
  }
  for (const auto field : {&MetricsRow::peak_bytes, &MetricsRow::peak_rss_bytes, &MetricsRow::peak_pss_bytes})
    row.*field = larger(earlier.*field, later.*field);
  for (const auto& [key, value] : earlier.others) {
    const auto [other, is_new] = row.others.try_emplace(key, value);
    if (!is_new) other->second = *larger(std::optional(value), std::optional(other->second));
  }
  return row;
}

ThinnedMetricsWriter::ThinnedMetricsWriter(std::filesystem::path path, std::int64_t first_step,
                                           bool its_validation, std::size_t most_rows)
    : path_(std::move(path)), most_rows_(most_rows) {
  if (std::filesystem::exists(path_)) {
    std::string kept;
    bool dropped = false;
    for (const MetricsRow& row : read_metrics(path_).rows) {
      if (row.step > first_step || (its_validation && row.step == first_step && row.is_validation())) {
        dropped = true;
        continue;
      }
      kept += to_json_line(row) + "\n";
      if (row.is_validation()) continue;
      ++rows_;
      while (steps_ < row.steps.value_or(1)) steps_ *= 2;
    }
    if (dropped) replace_text_file(path_, kept);
  }
  writer_.emplace(path_);
}

void ThinnedMetricsWriter::append_step(std::span<const MetricsRow> of_ranks) {
  add(of_ranks);
  write();
}

void ThinnedMetricsWriter::append_steps(std::span<const std::vector<MetricsRow>> steps) {
  std::exception_ptr failure;
  for (const std::vector<MetricsRow>& of_ranks : steps) {
    add(of_ranks);
    if (failure || rows_ + rows_to_write_.size() <= most_rows_) continue;
    // Thinning determines how many steps the next rows cover.
    try {
      write();
    } catch (const Error&) {
      failure = std::current_exception();  // process the remaining steps before rethrowing
    }
  }
  if (failure) std::rethrow_exception(failure);
  write();
}

void ThinnedMetricsWriter::add(std::span<const MetricsRow> of_ranks) {
  if (begun_.empty()) {
    begun_.assign(of_ranks.begin(), of_ranks.end());
  } else {
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
      begun_[rank] = joined_rows(begun_[rank], of_ranks[rank]);
  }
  if (begun_.front().steps.value_or(1) >= steps_) complete();
}

void ThinnedMetricsWriter::append_validation(const MetricsRow& row) {
  complete();  // the file is in step order
  rows_to_write_.push_back(row);
  write();
}

void ThinnedMetricsWriter::flush() {
  complete();
  write();
}

void ThinnedMetricsWriter::complete() {
  std::move(begun_.begin(), begun_.end(), std::back_inserter(rows_to_write_));
  begun_.clear();
}

void ThinnedMetricsWriter::open() {
  if (writer_ && std::filesystem::exists(path_)) return;
  writer_.reset();
  if (!std::filesystem::exists(path_)) rows_ = 0;
  writer_.emplace(path_);
}

void ThinnedMetricsWriter::write() {
  try {
    open();
    writer_->append(rows_to_write_);
  } catch (...) {
    writer_.reset();
    if (rows_to_write_.size() > most_rows_)
      rows_to_write_.erase(rows_to_write_.begin(),
                           rows_to_write_.end() - static_cast<std::ptrdiff_t>(most_rows_));
    throw;
  }
  rows_ +=
      static_cast<std::size_t>(std::count_if(rows_to_write_.begin(), rows_to_write_.end(),
                                             [](const MetricsRow& row) { return !row.is_validation(); }));
  rows_to_write_.clear();
  if (rows_ > most_rows_) thin();
}

void ThinnedMetricsWriter::thin() {
  std::map<int, MetricsRow> held;  // by rank
  std::string text;
  std::size_t kept = 0;
  const auto keep = [&](const MetricsRow& row) {
    text += to_json_line(row) + "\n";
    ++kept;
  };
  for (const MetricsRow& row : read_metrics(path_).rows) {
    if (row.is_validation()) {
      text += to_json_line(row) + "\n";
    } else if (const auto before = held.find(row.rank); before == held.end()) {
      held.emplace(row.rank, row);
    } else {
      keep(joined_rows(before->second, row));
      held.erase(before);
    }
  }
  for (const auto& [rank, row] : held) keep(row);
  writer_.reset();
  replace_text_file(path_, text);
  rows_ = kept;
  steps_ *= 2;
  writer_.emplace(path_);
}

}  // namespace rondo
