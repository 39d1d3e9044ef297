#include "rondo/train/metric.h"

#include <torch/types.h>

#include <cmath>
#include <limits>

namespace rondo {
namespace {

double quotient(std::span<const double> totals) {
  return totals[1] > 0 ? totals[0] / totals[1] : std::numeric_limits<double>::quiet_NaN();
}

void measure_loss(const MetricInput& batch, std::span<double> sums) {
  sums[0] = batch.loss.sum.item<double>();
  sums[1] = static_cast<double>(batch.loss.predictions);
}

void measure_accuracy(const MetricInput& batch, std::span<double> sums) {
  sums[0] = static_cast<double>(count_correct(batch.output, batch.target).item<std::int64_t>());
  sums[1] = static_cast<double>(batch.loss.predictions);
}

}  // namespace

Metric loss_metric() { return {"loss", 2, measure_loss, quotient}; }

Metric accuracy_metric() { return {"accuracy", 2, measure_accuracy, quotient}; }

Metric perplexity_metric() {
  return {"perplexity", 2, measure_loss,
          [](std::span<const double> totals) { return std::exp(quotient(totals)); }};
}

}  // namespace rondo
