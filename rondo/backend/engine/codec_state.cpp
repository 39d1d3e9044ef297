#include "rondo/backend/engine/codec_state.h"

#include <torch/types.h>

#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr const char* kCodec = "codec";  // key of the codec's name in a state

void resize(at::Tensor& residual, std::int64_t count) {
  if ((residual.defined() ? residual.numel() : 0) == count) return;
  residual = count > 0 ? at::zeros({count}, at::kFloat) : at::Tensor();
}

}  // namespace

void ErrorFeedback::reserve(const collective::Codec& codec, std::int64_t value_count,
                            std::int64_t sum_count) {
  const bool kept = codec.needs_residual();
  resize(values, kept ? value_count : 0);
  resize(sums, kept ? sum_count : 0);
}

void ErrorFeedback::add_to(CommState& state, const std::string& prefix) const {
  if (values.defined()) state[prefix + "residual"] = values;
  if (sums.defined()) state[prefix + "sum_residual"] = sums;
}

std::span<float> residual_part(const at::Tensor& residual, std::int64_t begin, std::int64_t count) {
  if (!residual.defined()) return {};
  return {residual.data_ptr<float>() + begin, static_cast<std::size_t>(count)};
}

CommState copy_of(const CommState& state) {
  CommState copy;
  for (const auto& [name, tensor] : state) copy[name] = tensor.clone();
  return copy;
}

CommState entries_behind(const std::string& prefix, const CommState& state) {
  CommState entries;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(prefix)) entries[name.substr(prefix.size())] = tensor;
  }
  return entries;
}

CommState save_feedback(const CommState& feedback, const std::string& codec) {
  CommState state = copy_of(feedback);
  if (!state.empty()) state[kCodec] = text_to_tensor(codec);
  return state;
}

std::string restore_feedback(const CommState& feedback, const std::string& codec, const CommState& saved) {
  if (std::string mismatch = codec_mismatch(text_in(saved, kCodec), codec); !mismatch.empty())
    return mismatch;
  for (const auto& [name, tensor] : feedback) {
    const auto found = saved.find(name);
    if (found == saved.end() || found->second.sizes() != tensor.sizes())
      return "is of other units, blocks or ranks that share the model";
  }
  for (const auto& [name, tensor] : feedback) tensor.copy_(saved.at(name));
  return {};
}

std::string restore_own_state(const std::vector<CommState>& of_ranks, int rank, int ranks,
                              const std::function<std::string(const CommState&)>& restore) {
  if (of_ranks.empty()) return "is not there";
  if (of_ranks.size() != static_cast<std::size_t>(ranks))
    return str("is of ", of_ranks.size(), " ranks, this run has ", ranks);
  return restore(of_ranks[static_cast<std::size_t>(rank)]);
}

std::string codec_mismatch(const std::string& saved, const std::string& own) {
  if (saved == own) return {};
  const auto quoted = [](const std::string& name) { return name.empty() ? "none" : str("'", name, "'"); };
  return str("was saved with communication hook ", quoted(saved), ", this model has ", quoted(own));
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

std::string text_in(const CommState& state, const std::string& name) {
  const auto found = state.find(name);
  if (found == state.end()) return {};
  const at::Tensor flat = found->second.to(at::kCPU, at::kByte).contiguous();
  return {static_cast<const char*>(flat.data_ptr()), flat.nbytes()};
}

}  // namespace rondo
