#pragma once

#include <ATen/core/Tensor.h>

#include "rondo/nn/sample_dropout.h"

namespace rondo {

// Returns softmax(query key^T / sqrt(size of a head)) value for [samples, heads, length, size]. `mask` is
// bool, true at positions that may be attended to, and broadcasts to [samples, heads, length, length];
// undefined: all positions. With `causal` a position sees itself and earlier ones; `mask` must then be
// undefined. `dropout` applies to the probabilities: if it is active they are materialised, otherwise
// libtorch's fused kernel runs.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const at::Tensor& mask, bool causal, SampleDropout& dropout);

}  // namespace rondo
