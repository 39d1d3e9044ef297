#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <string>
#include <vector>

#include "rondo/backend/registry.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"

// Ranks as threads of this process, for tests that communicate.
namespace rondo::testing {

// Returns the engines of this build that the test matrix runs over.
inline std::vector<std::string> engines() {
  std::vector<std::string> result;
  const std::vector<std::string> known = backend_names();
  for (const std::string name : {"native", "gloo"}) {
    if (std::find(known.begin(), known.end(), name) != known.end()) result.push_back(name);
  }
  return result;
}

// Returns values that depend only on the seed, even if other threads draw numbers.
inline at::Tensor random_tensor(at::IntArrayRef shape, std::uint64_t seed,
                                at::ScalarType dtype = at::kDouble) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(dtype));
}

// Gives every parameter values that depend on the seed and its position.
inline void fill_parameters(const torch::nn::Module& module, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.copy_(random_tensor(parameter.sizes(), seed++) * 0.3);
  }
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace rondo::testing
