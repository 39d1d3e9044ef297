#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"

namespace rondo {

// The data of a batch for a metric.
struct MetricInput {
  const Tensors& outputs;  // outputs of the model
  const Tensors& targets;  // targets of the batch
  const Loss& loss;        // loss of the batch
  // Returns the first output.
  const at::Tensor& output() const { return outputs.front(); }
  const at::Tensor& target() const { return targets.front(); }  // first target
};

// A figure of merit over a whole data set: sums over batches and ranks (in float64), then one function of the
// totals. It never averages means of batches, so batches and ranks may differ in size.
struct Metric {
  std::string name;  // name in metrics.jsonl and in results
  // Number of sums.
  std::size_t sums = 1;
  // Writes this batch's contribution to each of the sums.
  std::function<void(const MetricInput& batch, std::span<double> sums)> measure;
  // Returns the figure from the totals.
  std::function<double(std::span<const double> totals)> result;
  // Replaces the three fields above for a figure that is not a function of sums. Returns the rows of a batch,
  // float64 [any number, columns], on the CPU. A rank may have no rows; the figure must not depend on the
  // order of rows.
  std::function<at::Tensor(const MetricInput& batch)> rows = {};
  std::function<double(const at::Tensor& rows)> result_of_rows = {};  // figure from the rows of all batches
                                                                      // and ranks
};

// Returns the mean loss per prediction, from the training's loss function, for any outputs and targets.
Metric loss_metric();
// Returns the mean of another loss function, under another name. Propagates exceptions of `loss`; the first
// dimension of the first target counts samples.
Metric loss_metric(const LossFunction& loss, std::string name);
// Returns the fraction of predictions whose largest logit is the target: of the first output, logits [...,
// classes] of any float dtype, and the first target, int64 of the leading shape. Entries of kIgnoredTarget do
// not count. NaN if no prediction counts.
Metric accuracy_metric();
// Returns exp(mean loss per prediction) of the training's loss. It is the perplexity if that loss is the mean
// negative log-likelihood (cross_entropy, nll). Accepts the same outputs and targets as the loss.
Metric perplexity_metric();
// Returns `metric` of output `index` and target `index` (from 0) of a model with several outputs, under
// another name. The loss that `metric` sees is that of the whole batch. Throws UsageError with its name, when
// it measures, if there is no such output or target.
Metric of_output(std::size_t index, std::string name, const Metric& metric);

}  // namespace rondo
