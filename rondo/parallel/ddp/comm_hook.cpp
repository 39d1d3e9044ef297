#include "rondo/parallel/ddp/comm_hook.h"

#include <torch/types.h>

namespace rondo {

std::vector<at::Tensor> GradBucket::gradients() const {
  std::vector<at::Tensor> parts;
  std::int64_t offset = 0;
  for (const at::Tensor& parameter : parameters_) {
    parts.push_back(buffer_.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
  return parts;
}

at::Tensor numbers_to_tensor(const std::vector<std::size_t>& numbers) {
  return torch::tensor(std::vector<std::int64_t>(numbers.begin(), numbers.end()), at::kLong);
}

std::vector<std::size_t> tensor_to_numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const auto* begin = flat.data_ptr<std::int64_t>();
  return {begin, begin + flat.numel()};
}

at::Tensor text_to_tensor(const std::string& text) {
  return torch::tensor(std::vector<std::uint8_t>(text.begin(), text.end()), at::kByte);
}

std::string tensor_to_text(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {static_cast<const char*>(flat.data_ptr()), flat.nbytes()};
}

}  // namespace rondo
