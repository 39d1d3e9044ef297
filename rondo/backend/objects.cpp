#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <cstring>

#include "rondo/backend/collectives.h"

// Objects travel as CBOR (RFC 8949), which keeps integers, floats and binary exactly.
namespace rondo {
namespace {

at::Tensor encode(const nlohmann::json& object) {
  const std::vector<std::uint8_t> bytes = nlohmann::json::to_cbor(object);
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

nlohmann::json decode(const at::Tensor& tensor, std::int64_t bytes) {
  const auto* begin = tensor.data_ptr<std::uint8_t>();
  return nlohmann::json::from_cbor(begin, begin + bytes);
}

at::Tensor size_of(const at::Tensor& tensor) { return at::tensor({tensor.numel()}, at::kLong); }

// Pads to the longest of all ranks, as c10d gathers pieces of one size.
struct Padded {
  at::Tensor bytes;
  std::vector<std::int64_t> sizes;
};

Padded pad(const nlohmann::json& object, const Group& group) {
  const at::Tensor own = encode(object);
  Padded padded;
  std::int64_t longest = 0;
  for (const at::Tensor& size : all_gather(size_of(own), group)) {
    padded.sizes.push_back(size.item<std::int64_t>());
    longest = std::max(longest, padded.sizes.back());
  }
  padded.bytes = at::zeros({longest}, at::kByte);
  padded.bytes.narrow(0, 0, own.numel()).copy_(own);
  return padded;
}

std::vector<nlohmann::json> decode_all(const std::vector<at::Tensor>& tensors,
                                       const std::vector<std::int64_t>& sizes) {
  std::vector<nlohmann::json> objects;
  for (std::size_t r = 0; r < tensors.size(); ++r) objects.push_back(decode(tensors[r], sizes[r]));
  return objects;
}

}  // namespace

nlohmann::json broadcast_object(const nlohmann::json& object, const Group& group, int root) {
  const bool is_root = group.rank() == root;
  at::Tensor bytes = is_root ? encode(object) : at::empty({0}, at::kByte);
  at::Tensor size = size_of(bytes);
  broadcast(size, group, root);
  if (!is_root) bytes = at::empty({size.item<std::int64_t>()}, at::kByte);
  broadcast(bytes, group, root);
  return is_root ? object : decode(bytes, bytes.numel());
}

std::vector<nlohmann::json> all_gather_object(const nlohmann::json& object, const Group& group) {
  const Padded padded = pad(object, group);
  return decode_all(all_gather(padded.bytes, group), padded.sizes);
}

std::vector<nlohmann::json> gather_object(const nlohmann::json& object, const Group& group, int root) {
  const Padded padded = pad(object, group);
  return decode_all(gather(padded.bytes, group, root), padded.sizes);
}

}  // namespace rondo
