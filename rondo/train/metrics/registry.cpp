#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/train/metrics/metrics.h"

namespace rondo {
namespace {

struct MetricKind {
  const char* name;
  bool larger_is_better;
  Metric (*make)(const MetricOptions&);
};
constexpr MetricKind kMetricKinds[] = {
    {"accuracy", true, [](const MetricOptions&) { return accuracy_metric(); }},
    {"auc", true, [](const MetricOptions&) { return auc_metric(); }},
    {"f1", true, [](const MetricOptions& options) { return f1_metric(options); }},
    {"loss", false, [](const MetricOptions&) { return loss_metric(); }},
    {"mae", false, [](const MetricOptions&) { return mean_absolute_error_metric(); }},
    {"mse", false, [](const MetricOptions&) { return mean_squared_error_metric(); }},
    {"perplexity", false, [](const MetricOptions&) { return perplexity_metric(); }},
    {"precision", true, [](const MetricOptions& options) { return precision_metric(options); }},
    {"recall", true, [](const MetricOptions& options) { return recall_metric(options); }},
    {"top_k", true, [](const MetricOptions& options) { return top_k_metric(options.k); }},
};

const MetricKind& metric_kind(const std::string& name) {
  for (const MetricKind& kind : kMetricKinds) {
    if (name == kind.name) return kind;
  }
  throw UsageError(str("unknown metric '", name, "'; known are: ", join(metric_names(), ", ")));
}

}  // namespace

Metric make_metric(const std::string& name, const MetricOptions& options) {
  return metric_kind(name).make(options);
}

bool larger_is_better(const std::string& metric) { return metric_kind(metric).larger_is_better; }

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const MetricKind& kind : kMetricKinds) names.emplace_back(kind.name);
  return names;
}

}  // namespace rondo
