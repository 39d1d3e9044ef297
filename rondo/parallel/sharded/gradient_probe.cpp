#include "rondo/parallel/sharded/gradient_probe.h"

#include <torch/types.h>

#include <cmath>

namespace rondo {
namespace {

constexpr std::size_t kElements = 4;

// The first element; 0 where it cannot be read without waiting.
double first_of(const at::Tensor& gradient) {
  if (!gradient.defined() || gradient.numel() == 0 || !gradient.is_cpu()) return 0;
  if (gradient.scalar_type() == at::kFloat) return *gradient.const_data_ptr<float>();
  if (gradient.scalar_type() == at::kDouble) return *gradient.const_data_ptr<double>();
  return 0;
}

bool is_power_of_two(double factor) {
  int exponent = 0;
  return std::frexp(factor, &exponent) == 0.5;
}

}  // namespace

void GradientProbe::look(const ShardedUnits& units) {
  elements_.clear();
  for (const auto& unit : units) {
    for (const at::Tensor& gradient : unit->shard_gradients()) {
      if (elements_.size() == kElements) return;
      const double value = first_of(gradient);
      if (value != 0) elements_.push_back({gradient, value});
    }
  }
}

std::optional<GradientScaling> GradientProbe::scaling(const ShardedUnits& units) const {
  if (elements_.size() < 2) return {};
  const double factor = first_of(elements_.front().gradient) / elements_.front().value;
  if (!(factor > 0 && factor < 1) || is_power_of_two(factor)) return {};
  for (const Element& element : elements_) {
    const double own = first_of(element.gradient) / element.value;
    if (!(std::abs(own / factor - 1) < 1e-4)) return {};
  }
  const at::NoGradGuard no_grad;
  double squares = 0;
  for (const auto& unit : units) {
    for (const at::Tensor& gradient : unit->shard_gradients())
      squares += at::linalg_vector_norm(gradient, 2, {}, false, at::kDouble).square().item<double>();
  }
  return GradientScaling{static_cast<float>(factor), static_cast<float>(std::sqrt(squares))};
}

}  // namespace rondo
