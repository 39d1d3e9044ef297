#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"

namespace rondo {

// What a metric sees of a batch.
struct MetricInput {
  const Tensors& outputs;  // of the model
  const Tensors& targets;  // of the batch
  const Loss& loss;        // of the batch
  // The first of each.
  const at::Tensor& output() const { return outputs.front(); }
  const at::Tensor& target() const { return targets.front(); }  // of the targets
};

// A figure of merit over a whole data set: sums over batches and ranks (added in float64), then one function
// of the totals. Means of batches are never averaged, so batches and ranks of unequal size do no harm.
struct Metric {
  std::string name;  // in metrics.jsonl and in results
  // How many sums there are.
  std::size_t sums = 1;
  // Writes this batch's contribution to each of the sums.
  std::function<void(const MetricInput& batch, std::span<double> sums)> measure;
  // The figure from the totals.
  std::function<double(std::span<const double> totals)> result;
  // For a figure that is no function of sums, instead of the three above: what it needs of a batch, float64
  // [any number, columns], on the CPU; and the figure from the rows of all batches and ranks, whose order
  // must not matter. A rank may have none.
  std::function<at::Tensor(const MetricInput& batch)> rows = {};
  std::function<double(const at::Tensor& rows)> result_of_rows = {};  // of all of them
};

// Mean loss per prediction: what the loss function returned, whatever outputs and targets are.
Metric loss_metric();
// The same of another loss function than the one that training minimises, under another name. Throws what
// `loss` throws; the first dimension of the first target counts samples.
Metric loss_metric(const LossFunction& loss, std::string name);
// Fraction of predictions whose largest logit is the target: of the first output, logits [..., classes] of
// any float dtype, and the first target, int64 of the leading shape. Entries of kIgnoredTarget do not count.
// NaN where no prediction counts.
Metric accuracy_metric();
// exp(mean loss per prediction), of the loss that training minimises: it is the perplexity where that is the
// mean negative log-likelihood (cross_entropy, nll). It takes what that loss takes.
Metric perplexity_metric();
// Of a model with several outputs: `metric` of output `index` and target `index` (from 0), under another
// name. It takes what `metric` takes; the loss that `metric` sees stays that of the whole batch. When it
// measures, it throws UsageError that names it where there is no such output or target.
Metric of_output(std::size_t index, std::string name, const Metric& metric);

}  // namespace rondo
