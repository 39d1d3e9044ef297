#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/train/metric.h"

namespace rondo {

// Options of metrics of classes; each metric reads its own.
struct MetricOptions {
  // precision, recall, f1: 2 means class 1 alone; more means the average over the classes
  std::int64_t classes = 2;
  std::int64_t k = 5;      // top_k
  double threshold = 0.5;  // precision, recall, f1 of 2 classes: smallest probability of class 1
};

// Returns a metric by name. Throws UsageError for an unknown name or invalid options.
Metric make_metric(const std::string& name, const MetricOptions& options = {});
// Returns accuracy, auc, f1, loss, mae, mse, perplexity, precision, recall, top_k.
std::vector<std::string> metric_names();

// Returns whether larger values are better. Throws UsageError for an unknown name.
bool larger_is_better(const std::string& metric);

// Returns the fraction of predictions whose target is among the k largest logits.
Metric top_k_metric(std::int64_t k);
// Returns the precision: the fraction of predictions of a class that are right; 0 if there are none. For two
// classes: logits [..., 2], or [...] of class 1. For more classes: logits [..., classes], averaged over the
// classes that occur.
Metric precision_metric(const MetricOptions& options = {});
// Returns the recall: the fraction of a class's samples that are predicted as this class; likewise.
Metric recall_metric(const MetricOptions& options = {});
// Returns the harmonic mean of precision and recall; likewise.
Metric f1_metric(const MetricOptions& options = {});
// Returns the area under the receiver operating characteristic of two classes. It is exact (without
// thresholds): the fraction of pairs of different classes in which class 1 has the larger logit; ties count
// half. NaN if only one class occurs. Every rank holds a row for each prediction.
Metric auc_metric();
// Returns the mean absolute error of output and target, tensors of one shape.
Metric mean_absolute_error_metric();
Metric mean_squared_error_metric();  // mean squared error, likewise

// Returns the logits of class 1 against class 0, float64, in the target's shape; accepts the shapes of
// precision_metric(). Throws UsageError for an output of another shape, naming `metric`.
at::Tensor logits_of_class_1(const std::string& metric, const MetricInput& batch);

}  // namespace rondo
