#include "rondo/format/mlflow.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestParameter = 6000;

std::string new_run_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 32; ++i) id += "0123456789abcdef"[device() % 16];
  return id;
}

// A text in quotes is the same in JSON and in YAML.
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

// Lines of a metric's file are "time value step".
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

}  // namespace rondo
