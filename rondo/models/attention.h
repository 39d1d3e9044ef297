#pragma once

#include <ATen/core/Tensor.h>

#include "rondo/nn/sample_dropout.h"

namespace rondo {

// softmax(query key^T / sqrt(size of a head)) value for [samples, heads, length, size]. `mask` is bool and
// true where attention may go, of a shape that broadcasts to [samples, heads, length, length]; undefined is
// everywhere. `causal` lets a position see itself and what came before, and excludes a mask. `dropout`
// applies to the probabilities; while it is active they are computed apart, otherwise libtorch's fused kernel
// runs.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const at::Tensor& mask, bool causal, SampleDropout& dropout);

}  // namespace rondo
