#include <torch/types.h>

#include <cmath>
#include <limits>

#include "rondo/train/metrics/quotient.h"

namespace rondo {
namespace {

void measure_loss(const MetricInput& batch, std::span<double> sums) {
  sums[0] = batch.loss.sum.item<double>();
  sums[1] = static_cast<double>(batch.loss.predictions);
}

}  // namespace

double quotient(std::span<const double> totals) {
  return totals[1] > 0 ? totals[0] / totals[1] : std::numeric_limits<double>::quiet_NaN();
}

Metric loss_metric() { return {"loss", 2, measure_loss, quotient}; }

Metric loss_metric(const LossFunction& loss, std::string name) {
  return {std::move(name), 2,
          [loss](const MetricInput& batch, std::span<double> sums) {
            const Loss own = loss(batch.outputs, batch.targets, batch.target().size(0));
            measure_loss({batch.outputs, batch.targets, own}, sums);
          },
          quotient};
}

Metric perplexity_metric() {
  return {"perplexity", 2, measure_loss,
          [](std::span<const double> totals) { return std::exp(quotient(totals)); }};
}

}  // namespace rondo
