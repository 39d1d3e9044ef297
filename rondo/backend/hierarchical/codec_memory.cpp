// HierarchicalBackend's codec memory as named tensors: "about" (text), then for each buffer "3/elements",
// "3/residual", "3/sum_residual".
#include <torch/types.h>

#include <cstring>

#include "rondo/backend/hierarchical/hierarchical_backend.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

using Memory = hierarchical::CompressionTable::Memory;
using TensorsByName = std::map<std::string, at::Tensor>;

at::Tensor tensor_of_text(const std::string& text) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(tensor.mutable_data_ptr(), text.data(), text.size());
  return tensor;
}

std::string text_of_tensor(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.to(at::kCPU, at::kByte).contiguous();
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

at::Tensor tensor_of_floats(const std::vector<float>& values) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kFloat);
  if (!values.empty()) std::memcpy(tensor.mutable_data_ptr(), values.data(), tensor.nbytes());
  return tensor;
}

std::vector<float> floats_of_tensor(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kCPU, at::kFloat).contiguous();
  const auto* begin = static_cast<const float*>(values.const_data_ptr());
  return {begin, begin + values.numel()};
}

}  // namespace

// All that decides how buffers are cut and encoded; the same text on all ranks.
std::string HierarchicalBackend::describe_codec() const {
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts().world_size(); ++rank) host_of.push_back(hosts().host_of(rank));
  return str("codec ", compression_.codec(), ", chunk ", options_.chunk_bytes.count, ", inter_host_ranks ",
             options_.inter_host_ranks, ", ranks on hosts ", join(host_of, " "));
}

std::map<std::string, at::Tensor> HierarchicalBackend::memory() {
  TensorsByName tensors;
  if (!compression_.active()) return tensors;
  tensors["about"] = tensor_of_text(describe_codec());
  const std::vector<Memory> memories = compression_.save();
  for (std::size_t i = 0; i < memories.size(); ++i) {
    tensors[str(i, "/elements")] = at::scalar_tensor(memories[i].elements, at::kLong);
    tensors[str(i, "/residual")] = tensor_of_floats(memories[i].residual);
    tensors[str(i, "/sum_residual")] = tensor_of_floats(memories[i].sum_residual);
  }
  return tensors;
}

std::string HierarchicalBackend::restore_memory(const TensorsByName& memory) {
  if (!compression_.active()) return ExtendedBackend::restore_memory(memory);
  compression_.restore({});  // whatever follows, nothing of before
  const auto about = memory.find("about");
  if (about == memory.end()) return "is not there";
  if (const std::string saved = text_of_tensor(about->second); saved != describe_codec())
    return str("is of ", saved, ", and this engine has ", describe_codec());
  std::vector<Memory> memories;
  for (std::size_t i = 0; memory.contains(str(i, "/elements")); ++i) {
    const auto residual = memory.find(str(i, "/residual"));
    const auto sum_residual = memory.find(str(i, "/sum_residual"));
    if (residual == memory.end() || sum_residual == memory.end()) return str("lacks a part of buffer ", i);
    memories.push_back({memory.at(str(i, "/elements")).item<std::int64_t>(),
                        floats_of_tensor(residual->second), floats_of_tensor(sum_residual->second)});
  }
  compression_.restore(std::move(memories));
  return {};
}

}  // namespace rondo
