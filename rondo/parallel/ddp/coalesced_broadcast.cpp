#include "rondo/parallel/ddp/coalesced_broadcast.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/bytes.h"

namespace rondo {
namespace {

// Every dtype can be viewed at a multiple of this offset.
constexpr std::int64_t kTensorAlignment = 16;

std::int64_t padded_bytes(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

void broadcast_chunk(const std::vector<at::Tensor>& tensors, std::int64_t bytes, const Group& group,
                     int root) {
  if (tensors.empty()) return;
  // Bytes, not numbers: one message carries all dtypes, also those an engine cannot compute with.
  at::Tensor flat = at::empty({bytes}, tensors.front().options().dtype(at::kByte).requires_grad(false));
  std::vector<at::Tensor> slices;
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    slices.push_back(flat.narrow(0, offset, static_cast<std::int64_t>(tensor.nbytes()))
                         .view(tensor.scalar_type())
                         .view(tensor.sizes()));
    offset += padded_bytes(tensor);
  }
  if (group.rank() == root) {
    for (std::size_t i = 0; i < tensors.size(); ++i) slices[i].copy_(tensors[i]);
  }
  c10d::BroadcastOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> message = {flat};
  group.backend()->broadcast(message, options)->wait();
  if (group.rank() != root) {
    // variable_data has a version counter of its own, which is what keeps autograd from complaining.
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].variable_data().copy_(slices[i]);
  }
}

}  // namespace

void broadcast_coalesced(const std::vector<at::Tensor>& tensors, const Group& group, int root) {
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  constexpr std::int64_t chunk_limit = 25 << 20;
  std::vector<at::Tensor> chunk;
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    if (!chunk.empty() &&
        (bytes + padded_bytes(tensor) > chunk_limit || chunk.front().device() != tensor.device())) {
      broadcast_chunk(chunk, bytes, group, root);
      chunk.clear();
      bytes = 0;
    }
    chunk.push_back(tensor.detach());
    bytes += padded_bytes(tensor);
  }
  broadcast_chunk(chunk, bytes, group, root);
}

}  // namespace rondo
