#include "rondo/train/metrics/metrics.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {
namespace {

void measure_loss(const MetricInput& batch, std::span<double> sums) {
  sums[0] = batch.loss.sum.item<double>();
  sums[1] = static_cast<double>(batch.loss.predictions);
}

// Returns the first total divided by the second; NaN if that is 0.
double quotient(std::span<const double> totals) {
  return totals[1] > 0 ? totals[0] / totals[1] : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

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

Metric accuracy_metric() {
  return {"accuracy", 2,
          [](const MetricInput& batch, std::span<double> sums) {
            sums[0] = static_cast<double>(count_correct(batch.output(), batch.target()).item<std::int64_t>());
            sums[1] = static_cast<double>(count_predictions(batch.target()));
          },
          quotient};
}

Metric top_k_metric(std::int64_t k) {
  if (k < 1) throw UsageError(str("metric top_k: k is ", k, ", it must be one or more"));
  return {"top_k", 2,
          [k](const MetricInput& batch, std::span<double> sums) {
            const std::int64_t classes = batch.output().size(-1);
            if (k > classes)
              throw UsageError(str("metric top_k: k is ", k, " and the output has ", classes, " classes"));
            const at::Tensor best = std::get<1>(batch.output().detach().topk(k, -1));
            sums[0] = best.eq(batch.target().unsqueeze(-1)).sum().item<double>();
            sums[1] = static_cast<double>(count_predictions(batch.target()));
          },
          quotient};
}

Metric of_output(std::size_t index, std::string name, const Metric& metric) {
  const auto only = [index, name](const Tensors& tensors, const char* what) -> Tensors {
    if (index < tensors.size()) return {tensors[index]};
    throw UsageError(
        str("metric ", name, ": there is no ", what, " ", index, ", there are ", tensors.size()));
  };
  Metric result = metric;
  result.name = std::move(name);
  if (metric.measure) {
    result.measure = [only, measure = metric.measure](const MetricInput& batch, std::span<double> sums) {
      measure({only(batch.outputs, "output"), only(batch.targets, "target"), batch.loss}, sums);
    };
  }
  if (metric.rows) {
    result.rows = [only, rows = metric.rows](const MetricInput& batch) {
      return rows({only(batch.outputs, "output"), only(batch.targets, "target"), batch.loss});
    };
  }
  return result;
}

namespace {

template <class Measure>
Metric error_metric(const std::string& name, Measure measure) {
  return {name, 2,
          [name, measure](const MetricInput& batch, std::span<double> sums) {
            const at::Tensor& output = batch.output();
            const at::Tensor& target = batch.target();
            if (output.sizes() != target.sizes()) {
              throw UsageError(str("metric ", name, ": an output of ", describe_shape(output),
                                   " and a target of ", describe_shape(target),
                                   "; both must have the same sizes"));
            }
            const at::Tensor difference = output.detach().to(at::kDouble) - target.to(at::kDouble);
            sums[0] = measure(difference).template item<double>();
            sums[1] = static_cast<double>(target.numel());
          },
          quotient};
}

}  // namespace

Metric mean_absolute_error_metric() {
  return error_metric("mae", [](const at::Tensor& difference) { return difference.abs().sum(); });
}

Metric mean_squared_error_metric() {
  return error_metric("mse", [](const at::Tensor& difference) { return difference.square().sum(); });
}

namespace {

// Counts of one class.
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

namespace {

at::Tensor scores_and_classes(const MetricInput& batch) {
  const at::Tensor counts = batch.target().ne(kIgnoredTarget);
  const at::Tensor scores = logits_of_class_1("auc", batch).masked_select(counts);
  const at::Tensor classes = batch.target().masked_select(counts).gt(0).to(at::kDouble);
  return at::stack({scores, classes}, 1).cpu();
}

// Returns the area from the ranks of the scores (Mann and Whitney), in integers: exact for any order of rows.
double area(const at::Tensor& rows) {
  struct Row {
    double score, positive;
  };
  const at::Tensor together = rows.contiguous();
  const auto* first = reinterpret_cast<const Row*>(together.const_data_ptr<double>());
  std::vector<Row> sorted(first, first + together.size(0));
  std::sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.score < b.score; });
  double below = 0;      // negatives with a smaller score
  double twice_won = 0;  // ordered pairs count 2, ties 1
  double positives = 0;
  for (std::size_t begin = 0; begin < sorted.size();) {
    double equal_positives = 0;
    std::size_t end = begin;
    for (; end < sorted.size() && !(sorted[begin].score < sorted[end].score); ++end)
      equal_positives += sorted[end].positive;
    const double equal_negatives = static_cast<double>(end - begin) - equal_positives;
    twice_won += equal_positives * (2 * below + equal_negatives);
    below += equal_negatives;
    positives += equal_positives;
    begin = end;
  }
  const double pairs = positives * below;
  return pairs > 0 ? twice_won / (2 * pairs) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

Metric auc_metric() {
  return {.name = "auc",
          .sums = 0,
          .measure = {},
          .result = {},
          .rows = scores_and_classes,
          .result_of_rows = area};
}

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
