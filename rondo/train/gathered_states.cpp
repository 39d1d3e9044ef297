#include "rondo/train/gathered_states.h"

#include <torch/types.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rondo/backend/collectives.h"

namespace rondo {
namespace {

// Tensors lie one after the other in one buffer of bytes, each where any dtype may begin.
constexpr std::int64_t kAlignment = 16;

std::int64_t padded(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

nlohmann::json describe(const CommunicationState& state) {
  nlohmann::json entries = nlohmann::json::array();
  for (const auto& [name, tensor] : state) {
    entries.push_back(
        {{"name", name}, {"dtype", static_cast<int>(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}});
  }
  return {{"entries", entries}};
}

std::int64_t bytes_of(const nlohmann::json& entry) {
  std::int64_t bytes =
      static_cast<std::int64_t>(c10::elementSize(static_cast<at::ScalarType>(entry.at("dtype").get<int>())));
  for (const auto& length : entry.at("shape")) bytes *= length.get<std::int64_t>();
  return bytes;
}

std::int64_t bytes_of_all(const nlohmann::json& description) {
  std::int64_t total = 0;
  for (const auto& entry : description.at("entries")) total += padded(bytes_of(entry));
  return total;
}

CommunicationState take_apart(const at::Tensor& bytes, const nlohmann::json& description) {
  CommunicationState state;
  std::int64_t offset = 0;
  for (const auto& entry : description.at("entries")) {
    const std::int64_t size = bytes_of(entry);
    state[entry.at("name")] = bytes.narrow(0, offset, size)
                                  .view(static_cast<at::ScalarType>(entry.at("dtype").get<int>()))
                                  .view(entry.at("shape").get<std::vector<std::int64_t>>());
    offset += padded(size);
  }
  return state;
}

}  // namespace

std::vector<CommunicationState> gather_states(const CommunicationState& own, const Group& group) {
  const std::vector<nlohmann::json> descriptions = all_gather_object(describe(own), group);
  // Pieces of one size: the longest.
  std::int64_t longest = 0;
  for (const auto& description : descriptions) longest = std::max(longest, bytes_of_all(description));
  if (longest == 0) return {};
  const at::Tensor bytes = at::zeros({longest}, at::kByte);
  std::int64_t offset = 0;
  for (const auto& [name, tensor] : own) {
    const at::Tensor flat = tensor.to(at::kCPU).contiguous().view({-1}).view(at::kByte);
    bytes.narrow(0, offset, flat.numel()).copy_(flat);
    offset += padded(flat.numel());
  }
  const std::vector<at::Tensor> gathered = gather(bytes, group, 0);
  std::vector<CommunicationState> states;
  for (std::size_t rank = 0; rank < gathered.size(); ++rank)
    states.push_back(take_apart(gathered[rank], descriptions[rank]));
  return states;
}

}  // namespace rondo
