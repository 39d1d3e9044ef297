#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <vector>

namespace rondo {

struct MlpConfig {
  std::int64_t inputs = 784;
  std::vector<std::int64_t> hidden = {128, 64};  // may be empty: a linear classifier
  std::int64_t classes = 10;
};

// Fully connected layers with ReLU between them. Input [samples, ...] is flattened to [samples, inputs]; the
// result is logits [samples, classes].
class MlpImpl : public torch::nn::Module {
 public:
  explicit MlpImpl(const MlpConfig& config = {});
  at::Tensor forward(const at::Tensor& input);
  const MlpConfig& config() const { return config_; }

 private:
  MlpConfig config_;
  torch::nn::ModuleList layers_{nullptr};
};
TORCH_MODULE(Mlp);

}  // namespace rondo
