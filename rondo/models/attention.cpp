#include "rondo/models/attention.h"

#include <torch/types.h>

#include <cmath>
#include <limits>

namespace rondo {

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const at::Tensor& mask, bool causal, SampleDropout& dropout) {
  if (!dropout->active()) {
    return at::scaled_dot_product_attention(
        query, key, value, mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt, 0.0, causal);
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(-1)));
  at::Tensor scores = at::matmul(query * scale, key.transpose(-2, -1));
  at::Tensor hidden = mask.defined() ? mask.logical_not() : at::Tensor();
  if (causal) {
    const std::int64_t length = query.size(-2);
    hidden = at::ones({length, length}, query.options().dtype(at::kBool)).triu(1);
  }
  if (hidden.defined()) scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::matmul(dropout->forward(scores.softmax(-1)), value);
}

}  // namespace rondo
