#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/train/metric.h"

namespace rondo {

// What metrics of classes are told; each takes what concerns it.
struct MetricOptions {
  std::int64_t classes =
      2;                   // precision, recall, f1: 2 is of class 1 alone; more is the mean over the classes
  std::int64_t k = 5;      // top_k
  double threshold = 0.5;  // precision, recall, f1 of 2 classes: the probability from which it is class 1
};

// A metric by name. Throws UsageError for an unknown name or options that cannot be.
Metric make_metric(const std::string& name, const MetricOptions& options = {});
// accuracy, auc, f1, loss, mae, mse, perplexity, precision, recall, top_k.
std::vector<std::string> metric_names();

// Whether more of it is better. Throws UsageError for an unknown name.
bool larger_is_better(const std::string& metric);

// Fraction of predictions whose target is among the k largest logits.
Metric top_k_metric(std::int64_t k);
// Of those predicted to be of a class the part that is; 0 where none is predicted. Two classes: logits [...,
// 2], or [...] of class 1. More: logits [..., classes], the mean over the classes that occur.
Metric precision_metric(const MetricOptions& options = {});
// Of those of a class the part that is predicted to be; likewise.
Metric recall_metric(const MetricOptions& options = {});
// The harmonic mean of both; likewise.
Metric f1_metric(const MetricOptions& options = {});
// Area under the receiver operating characteristic of two classes, exact (not of some thresholds): the part
// of pairs of different classes of which class 1 has the larger logit, equal ones half. NaN where only one
// class occurs. Every rank then has a row for every prediction.
Metric auc_metric();
// Mean absolute and squared difference of output and target, tensors of one shape.
Metric mean_absolute_error_metric();
Metric mean_squared_error_metric();  // likewise

// How much class 1 is preferred to class 0, float64, in the target's shape; of logits as precision_metric()
// says. Throws UsageError for an output of another shape, naming `metric`.
at::Tensor logits_of_class_1(const std::string& metric, const MetricInput& batch);

}  // namespace rondo
