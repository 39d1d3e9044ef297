#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace rondo {

// Replaces squared norms of this rank's shards by those of the full parameters. Row i of `squares`, float64
// [parameters, 2] on the CPU, belongs to parameter i. Collective.
using NormSum = std::function<void(const std::vector<at::Tensor>& parameters, at::Tensor& squares)>;

}  // namespace rondo
