#include "rondo/format/metrics_export.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Returns a valid Prometheus name: letters, digits and '_'.
std::string metric_name(std::string_view name) {
  std::string result = "rondo_";
  for (const char c : name) {
    const bool allowed =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    result += allowed ? c : '_';
  }
  return result;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  TextStream text;
  text.precision(9);
  text << value;
  return text.str();
}

class Page {
 public:
  void begin(std::string_view name, std::string_view help) {
    name_ = metric_name(name);
    text_ += str("# HELP ", name_, " ", help, "\n# TYPE ", name_, " gauge\n");
  }
  void value(double value) { text_ += str(name_, " ", number_text(value), "\n"); }
  void value(int rank, double value) {
    text_ += str(name_, "{rank=\"", rank, "\"} ", number_text(value), "\n");
  }
  void figure(std::string_view name, std::string_view help, double of_it) {
    begin(name, help);
    value(of_it);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

struct RankFigure {
  const char* name;
  const char* help;
  std::optional<double> MetricsRow::*field;
  double scale;
};

struct JointFigure {
  const char* name;
  const char* help;
  std::optional<double> MetricsRow::*field;
};

}  // namespace

std::string prometheus_text(std::span<const MetricsRow> of_step,
                            const std::optional<MetricsRow>& validation) {
  Page page;
  if (!of_step.empty()) {
    const MetricsRow& first = of_step.front();
    page.figure("step", "optimizer steps done", static_cast<double>(first.step));
    page.figure("epoch", "epochs begun, from 0", static_cast<double>(first.epoch));
    page.figure("elapsed_seconds", "training time, resumed runs included", first.elapsed_s);
    page.figure("ranks", "ranks that train", static_cast<double>(of_step.size()));
    for (const JointFigure& joint :
         {JointFigure{"loss", "mean over the global batch", &MetricsRow::loss},
          {"learning_rate", "of the first parameter group", &MetricsRow::learning_rate},
          {"loss_scale", "of the gradient scaler", &MetricsRow::loss_scale},
          {"tokens_per_second", "of all ranks together", &MetricsRow::tokens_per_s},
          {"samples_per_second", "of all ranks together", &MetricsRow::samples_per_s}}) {
      if (first.*joint.field) page.figure(joint.name, joint.help, *(first.*joint.field));
    }
    for (const auto& [name, value] : first.others) page.figure(name, "of this step", value);
    for (const RankFigure& figure :
         {RankFigure{"step_seconds", "wall time of the step", &MetricsRow::step_ms, 1e-3},
          {"compute_seconds", "of the step, without waiting", &MetricsRow::compute_ms, 1e-3},
          {"communication_seconds", "communication in flight", &MetricsRow::comm_ms, 1e-3},
          {"waiting_seconds", "computation waited for communication", &MetricsRow::exposed_comm_ms, 1e-3}}) {
      if (!(first.*figure.field)) continue;
      page.begin(figure.name, figure.help);
      for (const MetricsRow& row : of_step)
        if (row.*figure.field) page.value(row.rank, *(row.*figure.field) * figure.scale);
    }
    if (first.peak_bytes) {
      page.begin("peak_bytes", "peak memory of tensors and buffers");
      for (const MetricsRow& row : of_step)
        if (row.peak_bytes) page.value(row.rank, static_cast<double>(*row.peak_bytes));
    }
  }
  if (validation) {
    page.figure("validation_step", "optimizer steps before the newest validation",
                static_cast<double>(validation->step));
    if (validation->validation_loss)
      page.figure("validation_loss", "over the validation data", *validation->validation_loss);
    if (validation->validation_accuracy)
      page.figure("validation_accuracy", "over the validation data", *validation->validation_accuracy);
    for (const auto& [name, value] : validation->others) page.figure(name, "over the validation data", value);
  }
  return page.take();
}

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestParameter = 6000;

std::string new_run_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 32; ++i) id += "0123456789abcdef"[device() % 16];
  return id;
}

// Returns a quoted text that is valid in JSON and in YAML.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string uri_of(const fs::path& path) {
  return str("file://", fs::absolute(path).lexically_normal().string());
}

std::string file_name(const std::string& name) {
  std::string result = name;
  for (char& letter : result) {
    const bool allowed = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                         (letter >= '0' && letter <= '9') ||
                         std::string_view("_-. /").find(letter) != std::string_view::npos;
    if (!allowed) letter = '_';
  }
  return result;
}

void make_experiment(const fs::path& directory) {
  const fs::path experiment = directory / "0";
  fs::create_directories(experiment);
  if (fs::exists(experiment / "meta.yaml")) return;
  const std::int64_t now = mlflow_time();
  replace_text_file(
      experiment / "meta.yaml",
      str("artifact_location: ", quoted(uri_of(experiment)), "\ncreation_time: ", now,
          "\nexperiment_id: '0'\nlast_update_time: ", now, "\nlifecycle_stage: active\nname: Default\n"));
}

// Drops lines of later steps from a metric's file, which has lines "time value step".
void drop_steps_behind(const fs::path& metric, std::int64_t last) {
  std::string kept;
  for (const std::string& line : split(read_text_file(metric), '\n')) {
    const std::vector<std::string> fields = split(line, ' ');
    std::int64_t step = 0;
    if (fields.size() != 3) continue;
    std::from_chars(fields[2].data(), fields[2].data() + fields[2].size(), step);
    if (step <= last) kept += line + "\n";
  }
  replace_text_file(metric, kept);
}

std::int64_t start_time_in(const fs::path& meta) {
  for (const std::string& line : split(read_text_file(meta), '\n')) {
    if (line.starts_with("start_time: "))
      return parse_integer(line.substr(12), str(meta.string(), ": start_time"));
  }
  throw DataError(str(meta.string(), " has no start_time"));
}

}  // namespace

std::int64_t mlflow_time() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

MlflowRun::MlflowRun(const fs::path& directory, const std::string& run_id, const std::string& name,
                     std::int64_t first_step)
    : id_(run_id.empty() ? new_run_id() : run_id), name_(name), path_(directory / "0" / id_) {
  make_experiment(directory);
  const fs::path meta = path_ / "meta.yaml";
  start_time_ = fs::exists(meta) ? start_time_in(meta) : mlflow_time();
  for (const char* folder : {"params", "metrics", "tags", "artifacts"})
    fs::create_directories(path_ / folder);
  for (const auto& metric : fs::recursive_directory_iterator(path_ / "metrics")) {
    if (metric.is_regular_file()) drop_steps_behind(metric.path(), first_step);
  }
  replace_text_file(path_ / "tags" / "mlflow.runName", name_);
  replace_text_file(path_ / "tags" / "mlflow.source.name", "rondo train");
  set_status(Status::running);
}

void MlflowRun::set_parameters(const std::map<std::string, std::string>& parameters) {
  for (const auto& [name, value] : parameters)
    replace_text_file(path_ / "params" / file_name(name), value.substr(0, kLongestParameter));
}

void MlflowRun::log_metric(const std::string& name, double value, std::int64_t step, std::int64_t time) {
  auto file = metrics_.find(name);
  if (file == metrics_.end()) {
    const fs::path path = path_ / "metrics" / file_name(name);
    fs::create_directories(path.parent_path());
    file = metrics_.emplace(name, OutputFile(path, OutputFile::Mode::append)).first;
  }
  char number[32];
  const auto end = std::to_chars(number, number + sizeof number, value).ptr;
  const std::string text = std::isnan(value)   ? "nan"
                           : std::isinf(value) ? (value > 0 ? "inf" : "-inf")
                                               : std::string(number, end);
  file->second.write(str(time, " ", text, " ", step, "\n"));
}

void MlflowRun::set_status(Status status) {
  const std::string end = status == Status::running ? "null" : str(mlflow_time());
  replace_text_file(path_ / "meta.yaml",
                    str("artifact_uri: ", quoted(uri_of(path_ / "artifacts")), "\nend_time: ", end,
                        "\nentry_point_name: ''\nexperiment_id: '0'\nlifecycle_stage: active\nrun_id: ",
                        quoted(id_), "\nrun_name: ", quoted(name_), "\nrun_uuid: ", quoted(id_),
                        "\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: ", start_time_,
                        "\nstatus: ", static_cast<int>(status), "\ntags: []\nuser_id: ''\n"));
}

namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  constexpr std::uint32_t reversed_polynomial = 0x82F63B78U;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? reversed_polynomial : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> crc_table = make_crc_table();

// Masks a CRC: a CRC over data that contains CRCs is weak, so TFRecord stores them rotated and shifted.
std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8U; }

template <class Value>
std::string little_endian(Value value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Wire types of protobuf: a key (field number << 3 | wire type) is followed by the value.
enum WireType : unsigned { varint_type = 0, fixed64_type = 1, length_type = 2, fixed32_type = 5 };

std::string varint(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  text += static_cast<char>(value);
  return text;
}
std::string key(unsigned field, WireType type) { return varint(field << 3 | type); }
std::string field_double(unsigned field, double value) {
  return key(field, fixed64_type) + little_endian(value);
}
std::string field_float(unsigned field, float value) {
  return key(field, fixed32_type) + little_endian(value);
}
std::string field_integer(unsigned field, std::int64_t value) {
  return key(field, varint_type) + varint(static_cast<std::uint64_t>(value));
}
std::string field_bytes(unsigned field, std::string_view value) {
  return key(field, length_type) + varint(value.size()) + std::string(value);
}

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
namespace event {
constexpr unsigned wall_time = 1, step = 2, file_version = 3, summary = 5;
}
namespace summary {
constexpr unsigned value = 1;
}
namespace summary_value {
constexpr unsigned tag = 1, simple_value = 2, histogram = 5;
}
namespace histogram_fields {
constexpr unsigned min = 1, max = 2, count = 3, sum = 4, sum_of_squares = 5, limits = 6, counts = 7;
}

std::string packed_doubles(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

std::filesystem::path event_file(const std::filesystem::path& directory, double wall_time) {
  std::filesystem::create_directories(directory);
  return directory /
         str("events.out.tfevents.", static_cast<long long>(wall_time), ".", host_name(), ".", ::getpid());
}

// Returns the value of a scalar in a summary.
std::string scalar(std::string_view tag, double value) {
  return field_bytes(summary_value::tag, tag) +
         field_float(summary_value::simple_value, static_cast<float>(value));
}

// Returns the record of an event with one value.
std::string event_record(const std::string& value, std::int64_t step, double wall_time) {
  return tfrecord(field_double(event::wall_time, wall_time) + field_integer(event::step, step) +
                  field_bytes(event::summary, field_bytes(summary::value, value)));
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> data) {
  std::uint32_t crc = ~0U;
  for (const std::byte byte : data)
    crc = crc >> 8 ^ crc_table[(crc ^ static_cast<std::uint32_t>(byte)) & 0xFF];
  return ~crc;
}

std::string tfrecord(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked(crc32c(as_bytes(length)))) + std::string(data) +
         little_endian(masked(crc32c(as_bytes(data))));
}

EventWriter::EventWriter(const std::filesystem::path& directory, double wall_time)
    : file_(event_file(directory, wall_time), OutputFile::Mode::append) {
  file_.write(tfrecord(field_double(event::wall_time, wall_time) +
                       field_bytes(event::file_version, "brain.Event:2")));
}

void EventWriter::add_scalar(std::string_view tag, double value, std::int64_t step, double wall_time) {
  file_.write(event_record(scalar(tag, value), step, wall_time));
}

void EventWriter::add_scalars(std::span<const std::pair<std::string, double>> values, std::int64_t step,
                              double wall_time) {
  std::string records;
  for (const auto& [tag, value] : values) records += event_record(scalar(tag, value), step, wall_time);
  if (!records.empty()) file_.write(records);
}

void EventWriter::add_histogram(std::string_view tag, const Histogram& histogram, std::int64_t step,
                                double wall_time) {
  namespace fields = histogram_fields;
  const std::string entry =
      field_double(fields::min, histogram.min) + field_double(fields::max, histogram.max) +
      field_double(fields::count, histogram.count) + field_double(fields::sum, histogram.sum) +
      field_double(fields::sum_of_squares, histogram.sum_of_squares) +
      field_bytes(fields::limits, packed_doubles(histogram.limits)) +
      field_bytes(fields::counts, packed_doubles(histogram.counts));
  const std::string value =
      field_bytes(summary_value::tag, tag) + field_bytes(summary_value::histogram, entry);
  file_.write(event_record(value, step, wall_time));
}

}  // namespace rondo
