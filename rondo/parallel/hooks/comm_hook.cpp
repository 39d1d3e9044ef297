#include "rondo/parallel/hooks/comm_hook.h"

#include <torch/types.h>

#include "rondo/base/text.h"

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

std::string restore_own_state(const std::vector<CommState>& of_ranks, const Group& group,
                              const std::function<std::string(const CommState&)>& restore) {
  if (of_ranks.empty()) return "is not there";
  if (of_ranks.size() != static_cast<std::size_t>(group.size()))
    return str("is of ", of_ranks.size(), " ranks, this run has ", group.size());
  return restore(of_ranks[static_cast<std::size_t>(group.rank())]);
}

std::string codec_restart_warning(const std::string& reason) {
  if (reason.empty()) return {};
  return str("the codec's error feedback is reset: its saved state ", reason);
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
