#include "rondo/models/loss.h"

#include <torch/types.h>

#include <algorithm>

namespace rondo {

Loss cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  Loss loss;
  loss.predictions = target.numel();
  const at::Tensor sum = at::cross_entropy_loss(logits.reshape({loss.predictions, logits.size(-1)}),
                                                target.reshape({loss.predictions}), {}, at::Reduction::Sum);
  loss.mean = sum / static_cast<double>(std::max<std::int64_t>(1, loss.predictions));
  loss.sum = sum.detach();
  return loss;
}

at::Tensor count_correct(const at::Tensor& logits, const at::Tensor& target) {
  return logits.detach().argmax(-1).eq(target).sum();
}

}  // namespace rondo
