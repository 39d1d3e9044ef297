#include "rondo/nn/sample_dropout.h"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/dropout_mask.h"
#include "rondo/nn/sample_scope.h"

namespace rondo {
namespace {

// FNV-1a: equal on every machine, which std::hash does not promise.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

}  // namespace

SampleDropoutImpl::SampleDropoutImpl(double probability)
    : probability_(probability), name_hash_(hash_of("")) {
  if (!(probability >= 0.0 && probability < 1.0)) {
    throw UsageError(str("dropout: the probability is ", probability, ", expected 0 <= probability < 1"));
  }
}

void SampleDropoutImpl::set_name(std::string name) {
  name_hash_ = hash_of(name);
  name_ = std::move(name);
}

at::Tensor SampleDropoutImpl::forward(const at::Tensor& input) {
  if (!active()) return input;
  const std::shared_ptr<const SampleInfo> info = SampleScope::current();
  if (!info) return at::dropout(input, probability_, /*train=*/true);
  const auto samples = static_cast<std::int64_t>(info->indices.size());
  if (input.dim() < 1 || input.size(0) != samples) {
    throw UsageError(str("dropout '", name_, "': input of shape [", join(input.sizes(), ", "), "] for ",
                         samples, " samples; the first dimension has to be the samples of the SampleScope"));
  }
  at::Tensor mask = at::empty(input.sizes(), at::TensorOptions().dtype(at::kFloat));
  if (mask.numel() > 0) {
    const DropoutKey key{info->seed, info->step, name_hash_};
    const std::int64_t values = mask.numel() / samples;
    auto* first = mask.mutable_data_ptr<float>();
    // A thread is worth starting for some ten thousand values.
    const std::int64_t grain = std::max<std::int64_t>(1, 32768 / values);
    at::parallel_for(0, samples, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        fill_dropout_mask(key, info->indices[static_cast<std::size_t>(row)], probability_,
                          {first + row * values, static_cast<std::size_t>(values)});
      }
    });
  }
  return input * mask.to(input.device(), input.scalar_type());
}

void name_sample_dropouts(const torch::nn::Module& model) {
  for (const auto& entry : model.named_modules("", /*include_self=*/false)) {
    if (auto* dropout = dynamic_cast<SampleDropoutImpl*>(entry.value().get())) dropout->set_name(entry.key());
  }
}

}  // namespace rondo
