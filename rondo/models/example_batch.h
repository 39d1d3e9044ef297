#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "rondo/nn/model.h"

namespace rondo {

// A batch that the model takes, of values by chance, from its configuration.
struct ExampleBatch {
  at::Tensor input;   // int64 tokens where it has a context or positions, else float32
  at::Tensor target;  // int64 classes or tokens
};

// Throws UsageError for a model whose configuration says neither context and vocabulary nor input_shape and
// classes.
ExampleBatch example_batch(const Model& model, std::int64_t samples);

}  // namespace rondo
