#include <torch/types.h>

#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/train/metrics/metrics.h"

namespace rondo {
namespace {

// Of one class.
struct ClassCounts {
  double hits = 0, predicted = 0, actual = 0;
};
using FigureOfClass = double (*)(const ClassCounts&);

void add_counts(const at::Tensor& classes, std::int64_t most, std::span<double> sums, std::size_t which) {
  const at::Tensor counts = classes.bincount({}, most).cpu();
  if (counts.numel() > most) throw UsageError(str("a target is a class beyond the ", most, " of the metric"));
  for (std::int64_t i = 0; i < most; ++i)
    sums[static_cast<std::size_t>(3 * i) + which] =
        static_cast<double>(counts.const_data_ptr<std::int64_t>()[i]);
}

at::Tensor predicted_classes(const std::string& name, const MetricOptions& options,
                             const MetricInput& batch) {
  if (options.classes == 2) {
    const double logit = std::log(options.threshold / (1 - options.threshold));
    return logits_of_class_1(name, batch).gt(logit).to(at::kLong);
  }
  const at::Tensor& output = batch.output();
  if (output.size(-1) != options.classes || output.dim() != batch.target().dim() + 1) {
    throw UsageError(str("metric ", name, " of ", options.classes, " classes: an output of ",
                         describe_shape(output), " and a target of ", describe_shape(batch.target())));
  }
  return output.detach().argmax(-1);
}

Metric figure_of_classes(std::string name, const MetricOptions& options, FigureOfClass figure) {
  if (options.classes < 2)
    throw UsageError(str("metric ", name, ": ", options.classes, " classes, there must be two or more"));
  if (!(options.threshold > 0 && options.threshold < 1))
    throw UsageError(str("metric ", name, ": threshold ", options.threshold, " must lie in (0, 1)"));
  const std::int64_t classes = options.classes;
  return {name, static_cast<std::size_t>(3 * classes),
          [name, options](const MetricInput& batch, std::span<double> sums) {
            const at::Tensor counts = batch.target().ne(kIgnoredTarget);
            const at::Tensor target = batch.target().to(at::kLong).masked_select(counts);
            const at::Tensor predicted = predicted_classes(name, options, batch).masked_select(counts);
            add_counts(target.masked_select(target.eq(predicted)), options.classes, sums, 0);
            add_counts(predicted, options.classes, sums, 1);
            add_counts(target, options.classes, sums, 2);
          },
          [classes, figure](std::span<const double> totals) {
            double sum = 0;
            int occurring = 0;
            for (std::size_t i = classes == 2 ? 1 : 0; i < static_cast<std::size_t>(classes); ++i) {
              const ClassCounts counts{totals[3 * i], totals[3 * i + 1], totals[3 * i + 2]};
              if (counts.predicted + counts.actual == 0) continue;
              sum += figure(counts);
              ++occurring;
            }
            return occurring > 0 ? sum / occurring : 0.0;
          }};
}

double part(double hits, double of) { return of > 0 ? hits / of : 0.0; }

}  // namespace

at::Tensor logits_of_class_1(const std::string& metric, const MetricInput& batch) {
  at::Tensor output = batch.output().detach().to(at::kDouble);
  const at::Tensor& target = batch.target();
  if (output.sizes() == target.sizes()) return output;
  if (output.dim() == target.dim() + 1 && output.size(-1) == 1) return output.squeeze(-1);
  if (output.dim() == target.dim() + 1 && output.size(-1) == 2)
    return output.select(-1, 1) - output.select(-1, 0);
  throw UsageError(str("metric ", metric, " of two classes: an output of ", describe_shape(batch.output()),
                       " and a target of ", describe_shape(target),
                       "; the output has the target's sizes, or one more dimension of 1 or 2"));
}

Metric precision_metric(const MetricOptions& options) {
  return figure_of_classes("precision", options,
                           [](const ClassCounts& counts) { return part(counts.hits, counts.predicted); });
}

Metric recall_metric(const MetricOptions& options) {
  return figure_of_classes("recall", options,
                           [](const ClassCounts& counts) { return part(counts.hits, counts.actual); });
}

Metric f1_metric(const MetricOptions& options) {
  return figure_of_classes("f1", options, [](const ClassCounts& counts) {
    return part(2 * counts.hits, counts.predicted + counts.actual);
  });
}

}  // namespace rondo
