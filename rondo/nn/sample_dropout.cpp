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

void SampleDropoutImpl::set_parts(std::vector<std::int64_t> parts, std::int64_t of) {
  parts_ = std::move(parts);
  parts_of_ = of;
}

void SampleDropoutImpl::divide(ParallelStyle style, Division& division, const std::string& path) {
  if (style != ParallelStyle::sequence && style != ParallelStyle::heads) {
    throw UsageError(
        str("'", path, "' is a dropout, which has no style ", to_text(style), "; it has sequence and heads"));
  }
  const bool divided = style == ParallelStyle::heads || division.sequence();
  if (divided && division.group().member()) set_parts({division.group().rank()}, division.group().size());
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
        const std::int64_t length = values / static_cast<std::int64_t>(parts_.size());
        float* place = first + row * values;
        for (const std::int64_t part : parts_) {
          fill_dropout_mask(key, info->indices[static_cast<std::size_t>(row)], probability_,
                            {place, static_cast<std::size_t>(length)}, part * length);
          place += length;
        }
      }
    });
  }
  return input * mask.to(input.device(), input.scalar_type());
}

at::Tensor SampleDropoutImpl::square_mask(const SampleInfo& info, std::int64_t heads, std::int64_t length,
                                          std::int64_t row, std::int64_t column, std::int64_t size) const {
  const auto samples = static_cast<std::int64_t>(info.indices.size());
  at::Tensor mask = at::empty({samples, heads, size, size}, at::TensorOptions().dtype(at::kFloat));
  const DropoutKey key{info.seed, info.step, name_hash_};
  auto* place = mask.mutable_data_ptr<float>();
  for (const std::int64_t sample : info.indices) {
    for (std::int64_t head = parts_.front() * heads; head < (parts_.front() + 1) * heads; ++head) {
      for (std::int64_t r = row; r < row + size; ++r, place += size) {
        fill_dropout_mask(key, sample, probability_, {place, static_cast<std::size_t>(size)},
                          (head * length + r) * length + column);
      }
    }
  }
  return mask;
}

void name_sample_dropouts(const torch::nn::Module& model) {
  for (const auto& entry : model.named_modules("", /*include_self=*/false)) {
    if (auto* dropout = dynamic_cast<SampleDropoutImpl*>(entry.value().get())) dropout->set_name(entry.key());
  }
}

}  // namespace rondo
