#include "rondo/parallel/ddp/comm_hook.h"

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

}  // namespace rondo
