#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/train/metrics/metrics.h"
#include "rondo/train/metrics/quotient.h"

namespace rondo {

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

}  // namespace rondo
