#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/train/metrics/metrics.h"
#include "rondo/train/metrics/quotient.h"

namespace rondo {
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

}  // namespace rondo
