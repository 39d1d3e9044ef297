#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/backend/registry.h"
#include "tests/rank_threads.h"

// Ranks as threads of this process, for tests of what communicates.
namespace rondo::testing {

// Calls `body` on `world` threads, each with its rank's handle on one group over `engine`. Rethrows what was
// thrown first, after all threads have ended.
inline void run_ranks(const std::string& engine, int world, const std::function<void(const Group&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<int> world_ranks(static_cast<std::size_t>(world));
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  tests::run_rank_threads(world, [&](int rank) {
    at::set_num_threads(1);
    const BackendRequest request{"test", rank, world, world_ranks, store, std::chrono::seconds(20)};
    const Group group("test", world_ranks, rank, make_backend(engine, request),
                      c10::make_intrusive<c10d::PrefixStore>("user", store));
    body(group);
  });
}

// The engines that the matrix of tests runs over: those of this build.
inline std::vector<std::string> engines() {
  std::vector<std::string> result;
  const std::vector<std::string> known = backend_names();
  for (const std::string name : {"native", "gloo"}) {
    if (std::find(known.begin(), known.end(), name) != known.end()) result.push_back(name);
  }
  return result;
}

// Values that depend on the seed only, whatever other threads draw.
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

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace rondo::testing
