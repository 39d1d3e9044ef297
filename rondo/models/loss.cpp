#include "rondo/models/loss.h"

#include <torch/types.h>

#include <algorithm>

namespace rondo {

std::int64_t count_predictions(const at::Tensor& target) {
  if (target.scalar_type() != at::kLong) return target.numel();
  if (target.is_cpu() && target.is_contiguous()) {
    // Far quicker than three operations on a tensor, which a small model's step would feel.
    const auto* first = target.const_data_ptr<std::int64_t>();
    return target.numel() - std::count(first, first + target.numel(), kIgnoredTarget);
  }
  return target.ne(kIgnoredTarget).sum().item<std::int64_t>();
}

Loss cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  Loss loss;
  loss.predictions = count_predictions(target);
  const at::Tensor sum =
      at::cross_entropy_loss(logits.reshape({target.numel(), logits.size(-1)}),
                             target.reshape({target.numel()}), {}, at::Reduction::Sum, kIgnoredTarget);
  loss.mean = sum / static_cast<double>(std::max<std::int64_t>(1, loss.predictions));
  loss.sum = sum.detach();
  return loss;
}

at::Tensor count_correct(const at::Tensor& logits, const at::Tensor& target) {
  return logits.detach().argmax(-1).eq(target).sum();
}

}  // namespace rondo
