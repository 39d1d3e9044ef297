#include "rondo/parallel/sharded/gradient_scale.h"

#include <torch/types.h>

#include <cmath>

namespace rondo {
namespace {

constexpr std::size_t kComparedGradients = 4;
constexpr double kScaleRounding = 1e-4;

bool is_readable(const at::Tensor& gradient) {
  return gradient.defined() && gradient.numel() > 0 && gradient.is_cpu() && gradient.is_contiguous() &&
         (gradient.scalar_type() == at::kFloat || gradient.scalar_type() == at::kDouble);
}

double value_at(const at::Tensor& gradient, std::int64_t element) {
  return gradient.scalar_type() == at::kFloat ? gradient.const_data_ptr<float>()[element]
                                              : gradient.const_data_ptr<double>()[element];
}

}  // namespace

void GradientScale::take(const ShardedUnits& units) {
  samples_.clear();
  for (const auto& unit : units) {
    if (!shards_optimizer(unit->sharding())) continue;
    for (const at::Tensor& gradient : unit->gradients()) {
      if (samples_.size() == kComparedGradients) return;
      if (!is_readable(gradient)) continue;
      const std::int64_t element = gradient.numel() / 2;
      const double value = value_at(gradient, element);
      if (value != 0 && std::isfinite(value)) samples_.push_back({gradient, element, value});
    }
  }
}

std::optional<double> GradientScale::factor() const {
  if (samples_.size() < 2) return std::nullopt;
  const auto factor_of = [](const Sample& sample) {
    return value_at(sample.gradient, sample.element) / sample.value;
  };
  const double factor = factor_of(samples_.front());
  for (const Sample& sample : samples_) {
    if (!(std::abs(factor_of(sample) - factor) <= kScaleRounding * std::abs(factor))) return std::nullopt;
  }
  return factor;
}

}  // namespace rondo
