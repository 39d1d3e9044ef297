#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rondo/models/loss.h"

namespace rondo {

// What a metric sees of a batch.
struct MetricInput {
  const at::Tensor& output;
  const at::Tensor& target;
  const Loss& loss;
};

// A figure of merit over a whole data set: sums over batches and ranks (added in float64), then one function
// of the totals. Means of batches are never averaged, so batches and ranks of unequal size do no harm.
struct Metric {
  std::string name;
  // How many sums there are.
  std::size_t sums = 1;
  // Writes this batch's contribution to each of the sums.
  std::function<void(const MetricInput& batch, std::span<double> sums)> measure;
  // The figure from the totals.
  std::function<double(std::span<const double> totals)> result;
};

// Mean loss per prediction.
Metric loss_metric();
// Fraction of predictions whose largest logit is the target.
Metric accuracy_metric();
// exp(mean loss per prediction).
Metric perplexity_metric();

}  // namespace rondo
