#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rondo {

// Cross-entropy of a batch.
struct Loss {
  at::Tensor mean;               // scalar, differentiable: sum / max(1, predictions), so 0 for an empty batch
  at::Tensor sum;                // scalar, detached; add these (not means) to average over batches or ranks
  std::int64_t predictions = 0;  // targets in the batch that count: samples, or samples x context
};

// A target of this value asks for no prediction and counts nowhere (PyTorch's ignore_index).
inline constexpr std::int64_t kIgnoredTarget = -100;

// Predictions that `target` asks for: int64, the entries that are not ignored; of another type all.
std::int64_t count_predictions(const at::Tensor& target);

// `logits` [..., classes] of any float dtype against int64 `target` of the leading shape. An empty batch
// still gives a loss that gradients (of zero) flow from, so a rank that ran out of samples can keep taking
// part.
Loss cross_entropy(const at::Tensor& logits, const at::Tensor& target);

// Number of predictions whose largest logit is the target; a scalar int64 tensor.
at::Tensor count_correct(const at::Tensor& logits, const at::Tensor& target);

}  // namespace rondo
