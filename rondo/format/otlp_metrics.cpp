#include "rondo/format/otlp_metrics.h"

#include <string_view>

#include "rondo/base/text.h"

namespace rondo::otlp {
namespace {

struct JointFigure {
  const char* name;
  const char* unit;
  const char* description;
  std::optional<double> MetricsRow::*field;
};
constexpr JointFigure kJointFigures[] = {
    {"rondo.train.loss", "1", "Mean loss over the global batch", &MetricsRow::loss},
    {"rondo.train.learning_rate", "1", "Learning rate of the first parameter group",
     &MetricsRow::learning_rate},
    {"rondo.train.loss_scale", "1", "Scale of the gradient scaler", &MetricsRow::loss_scale},
    {"rondo.train.token.rate", "{token}/s", "Tokens per second of all ranks", &MetricsRow::tokens_per_s},
    {"rondo.train.sample.rate", "{sample}/s", "Samples per second of all ranks", &MetricsRow::samples_per_s}};

struct DurationFigure {
  const char* name;
  const char* description;
  std::optional<double> MetricsRow::*milliseconds;
};
constexpr DurationFigure kDurationFigures[] = {
    {"rondo.train.step.duration", "Wall time of a step", &MetricsRow::step_ms},
    {"rondo.train.compute.duration", "Part of a step without exposed communication", &MetricsRow::compute_ms},
    {"rondo.train.communication.duration", "Time of a step with communication in flight",
     &MetricsRow::comm_ms},
    {"rondo.train.communication.exposed.duration", "Part of a step in which computation waited",
     &MetricsRow::exposed_comm_ms}};

struct MemoryFigure {
  const char* name;
  const char* description;
  std::optional<std::uint64_t> MetricsRow::*field;
};
constexpr MemoryFigure kMemoryFigures[] = {
    {"rondo.memory.tracked.peak", "Largest memory of tensors and buffers", &MetricsRow::peak_bytes},
    {"rondo.memory.resident.peak", "Largest resident memory of the process", &MetricsRow::peak_rss_bytes},
    {"rondo.memory.proportional.peak", "Largest resident memory, shared pages divided",
     &MetricsRow::peak_pss_bytes}};

Attributes of_rank(int rank) { return {{"rondo.rank", static_cast<std::int64_t>(rank)}}; }

Metric gauge(std::string name, std::string unit, std::string description, double value) {
  return {std::move(name), std::move(unit), std::move(description), {{value}}};
}

// Names of metrics have letters, digits, '_', '.', '-' and '/'.
std::string metric_name(std::string_view name) {
  std::string result(name);
  for (char& c : result) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                         std::string_view("_.-/").find(c) != std::string_view::npos;
    if (!allowed) c = '_';
  }
  return result;
}

void add_step_gauges(const std::vector<MetricsRow>& of_ranks, const std::map<std::string, double>& others,
                     std::vector<Metric>& metrics) {
  const MetricsRow& first = of_ranks.front();
  metrics.push_back(
      gauge("rondo.train.step", "{step}", "Optimizer steps done", static_cast<double>(first.step)));
  metrics.push_back(
      gauge("rondo.train.epoch", "{epoch}", "Current epoch, from 0", static_cast<double>(first.epoch)));
  metrics.push_back(
      gauge("rondo.train.elapsed", "s", "Training time, resumed runs included", first.elapsed_s));
  for (const JointFigure& figure : kJointFigures) {
    if (const auto value = first.*figure.field)
      metrics.push_back(gauge(figure.name, figure.unit, figure.description, *value));
  }
  for (const auto& [name, value] : others)
    metrics.push_back(gauge(str("rondo.train.", metric_name(name)), "1", "Figure of the step", value));
  for (const MemoryFigure& figure : kMemoryFigures) {
    Metric metric{figure.name, "By", figure.description};
    for (const MetricsRow& row : of_ranks) {
      if (const auto bytes = row.*figure.field)
        metric.gauges.push_back({static_cast<double>(*bytes), of_rank(row.rank)});
    }
    if (!metric.gauges.empty()) metrics.push_back(std::move(metric));
  }
}

void add_validation_gauges(const MetricsRow& row, std::vector<Metric>& metrics) {
  metrics.push_back(gauge("rondo.validation.step", "{step}", "Optimizer steps before the newest validation",
                          static_cast<double>(row.step)));
  const auto add = [&](const std::string& name, double value) {
    metrics.push_back(
        gauge("rondo.validation." + metric_name(name), "1", "Figure of the validation data", value));
  };
  if (row.validation_loss) add("loss", *row.validation_loss);
  if (row.validation_accuracy) add("accuracy", *row.validation_accuracy);
  constexpr std::string_view kPrefix = "validation_";
  for (const auto& [name, value] : row.others)
    add(name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name, value);
}

}  // namespace

void TrainingMetrics::add(std::span<const MetricsRow> rows) {
  if (rows.empty()) return;
  changed_ = true;
  if (rows.front().is_validation()) {
    validation_ = rows.front();
    return;
  }
  step_.assign(rows.begin(), rows.end());
  for (const auto& [name, value] : rows.front().others) others_[name] = value;
  for (const MetricsRow& row : rows) {
    Durations& durations = durations_[row.rank];
    for (std::size_t i = 0; i < kDurations; ++i) {
      if (const auto value = row.*kDurationFigures[i].milliseconds) durations[i].add(*value * 1e-3);
    }
  }
}

std::vector<Metric> TrainingMetrics::metrics() {
  static_assert(std::size(kDurationFigures) == kDurations);
  changed_ = false;
  std::vector<Metric> metrics;
  if (!step_.empty()) add_step_gauges(step_, others_, metrics);
  for (std::size_t i = 0; i < kDurations; ++i) {
    Metric metric{kDurationFigures[i].name, "s", kDurationFigures[i].description};
    for (const auto& [rank, durations] : durations_) {
      if (durations[i].count == 0) continue;
      metric.histograms.push_back(durations[i]);
      metric.histograms.back().attributes = of_rank(rank);
    }
    if (!metric.histograms.empty()) metrics.push_back(std::move(metric));
  }
  if (validation_) add_validation_gauges(*validation_, metrics);
  return metrics;
}

}  // namespace rondo::otlp
