#include "rondo/precision/master_weights.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "rondo/precision/dtype.h"

namespace rondo {
namespace {

using Masters = std::map<const c10::TensorImpl*, at::Tensor>;

// A module with the same children, names and tensors, the parameters in `masters` replaced.
class Twin {
 public:
  explicit Twin(const Masters& masters) : master_weights_(masters) {}

  std::shared_ptr<torch::nn::Module> of(const torch::nn::Module& module) {
    std::shared_ptr<torch::nn::Module>& twin = twins_[&module];
    if (twin) return twin;
    twin = std::make_shared<torch::nn::Module>(module.name());
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      const auto master = master_weights_.find(parameter.value().unsafeGetTensorImpl());
      const at::Tensor& tensor = master == master_weights_.end() ? parameter.value() : master->second;
      twin->register_parameter(parameter.key(), tensor, tensor.requires_grad());
    }
    for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
      twin->register_buffer(buffer.key(), buffer.value());
    }
    const std::shared_ptr<torch::nn::Module> result = twin;
    for (const auto& child : module.named_children())
      result->register_module(child.key(), of(*child.value()));
    return result;
  }

 private:
  const Masters& master_weights_;
  std::map<const torch::nn::Module*, std::shared_ptr<torch::nn::Module>> twins_;
};

}  // namespace

MasterWeights::MasterWeights(torch::nn::Module& model) {
  for (const at::Tensor& parameter : model.parameters()) {
    if (!is_half_width(parameter.scalar_type())) continue;
    at::Tensor master = parameter.detach().to(at::kFloat).requires_grad_(parameter.requires_grad());
    if (!masters_.emplace(parameter.unsafeGetTensorImpl(), master).second) continue;  // shared
    pairs_.push_back({parameter, std::move(master)});
  }
  module_ = Twin(masters_).of(model);
}

at::Tensor MasterWeights::of(const at::Tensor& parameter) const {
  const auto found = masters_.find(parameter.unsafeGetTensorImpl());
  return found == masters_.end() ? parameter : found->second;
}

void MasterWeights::take_gradients() {
  const torch::NoGradGuard no_gradients;
  for (Pair& pair : pairs_) {
    at::Tensor& gradient = pair.parameter.mutable_grad();
    pair.master.mutable_grad() = gradient.defined() ? gradient.to(at::kFloat) : at::Tensor();
    gradient = at::Tensor();
  }
}

void MasterWeights::write_back() {
  const torch::NoGradGuard no_gradients;
  for (Pair& pair : pairs_) pair.parameter.copy_(pair.master);
}

}  // namespace rondo
