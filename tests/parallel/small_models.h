#pragma once

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include "tests/parallel/ranks.h"

// Models, data and the one-process reference for tests of data parallelism. Everything is float64, so that
// results agree up to rounding.
namespace rondo::testing {

inline constexpr double kTolerance = 1e-12;

// A setting of the test matrix: an engine, and gradients below or above 64 KiB. The native engine reduces
// large gradients in place and copies small ones.
struct Setting {
  std::string engine;
  bool large;
};

inline std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.engine << (setting.large ? ", large gradients" : ", small gradients");
}

inline std::vector<Setting> settings() {
  std::vector<Setting> result;
  for (const std::string& engine : engines()) {
    result.push_back({engine, false});
    result.push_back({engine, true});
  }
  return result;
}

inline std::string setting_name(const ::testing::TestParamInfo<Setting>& info) {
  return info.param.engine + (info.param.large ? "_large" : "_small");
}

struct TwoLayersImpl : torch::nn::Module {
  explicit TwoLayersImpl(std::uint64_t seed = 1, std::int64_t hidden = 16)
      : first(6, hidden), second(hidden, 4) {
    register_module("first", first);
    register_module("second", second);
    to(at::kDouble);
    fill_parameters(*this, seed);
  }
  at::Tensor forward(const at::Tensor& input) { return second(torch::tanh(first(input))); }
  torch::nn::Linear first, second;
};
TORCH_MODULE(TwoLayers);

struct Batch {
  at::Tensor input;
  at::Tensor target;
};

// Returns the joint batch of one step, of which each rank takes some rows.
inline Batch joint_batch(std::int64_t samples, std::uint64_t step) {
  return {random_tensor({samples, 6}, 1000 + step), random_tensor({samples, 4}, 2000 + step)};
}

inline Batch rows(const Batch& batch, std::int64_t begin, std::int64_t count) {
  return {batch.input.narrow(0, begin, count), batch.target.narrow(0, begin, count)};
}

// Returns the rows of this rank if all ranks have the same number.
inline Batch my_rows(const Batch& batch, const Group& group) {
  const std::int64_t count = batch.input.size(0) / group.size();
  return rows(batch, group.rank() * count, count);
}

inline at::Tensor mean_loss(const at::Tensor& output, const Batch& batch) {
  return torch::mse_loss(output, batch.target);
}

// Returns the largest difference between the parameters.
inline double parameter_difference(const torch::nn::Module& a, const torch::nn::Module& b) {
  double largest = 0;
  const auto left = a.parameters();
  const auto right = b.parameters();
  for (std::size_t i = 0; i < left.size(); ++i) {
    largest = std::max(largest, largest_difference(left[i].detach(), right[i].detach()));
  }
  return largest;
}

inline double gradient_difference(const torch::nn::Module& a, const torch::nn::Module& b) {
  double largest = 0;
  const auto left = a.parameters();
  const auto right = b.parameters();
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].grad().defined() != right[i].grad().defined()) return 1e300;
    if (left[i].grad().defined())
      largest = std::max(largest, largest_difference(left[i].grad(), right[i].grad()));
  }
  return largest;
}

}  // namespace rondo::testing
