#include "rondo/nn/sample_dropout.h"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"

// Compiles the generator for several instruction sets; the loader chooses the fastest. Integer arithmetic
// gives the same bits on all of them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define RONDO_FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RONDO_FOR_EACH_PROCESSOR
#endif

namespace rondo {
namespace {

std::shared_ptr<const SampleInfo>& innermost() {
  thread_local std::shared_ptr<const SampleInfo> info;
  return info;
}

}  // namespace

SampleScope::SampleScope(SampleInfo info)
    : SampleScope(std::make_shared<const SampleInfo>(std::move(info))) {}

SampleScope::SampleScope(std::shared_ptr<const SampleInfo> info)
    : outer_(std::exchange(innermost(), std::move(info))) {}

SampleScope::~SampleScope() { innermost() = std::move(outer_); }

std::shared_ptr<const SampleInfo> SampleScope::current() { return innermost(); }

namespace {

// Number of counters that are advanced together, so that loops over them are vectorised.
constexpr std::size_t kLanes = 32;
constexpr std::size_t kGroup = 4 * kLanes;  // numbers of one call of `random_group`

}  // namespace

// Runs rondo::philox() for kLanes consecutive counters from `block`. Number w * kLanes + l is word w of
// counter l.
RONDO_FOR_EACH_PROCESSOR void random_group(std::uint64_t block, std::uint64_t sample, std::uint64_t key,
                                           std::uint32_t* numbers) {
  std::uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (std::size_t l = 0; l < kLanes; ++l) {
    c0[l] = static_cast<std::uint32_t>(block + l);
    c1[l] = static_cast<std::uint32_t>((block + l) >> 32);
    c2[l] = static_cast<std::uint32_t>(sample);
    c3[l] = static_cast<std::uint32_t>(sample >> 32);
  }
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      const std::uint64_t a = std::uint64_t{0xD2511F53U} * c0[l];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * c2[l];
      c0[l] = static_cast<std::uint32_t>(b >> 32) ^ c1[l] ^ k0;
      c1[l] = static_cast<std::uint32_t>(b);
      c2[l] = static_cast<std::uint32_t>(a >> 32) ^ c3[l] ^ k1;
      c3[l] = static_cast<std::uint32_t>(a);
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  std::copy_n(c0, kLanes, numbers);
  std::copy_n(c1, kLanes, numbers + kLanes);
  std::copy_n(c2, kLanes, numbers + 2 * kLanes);
  std::copy_n(c3, kLanes, numbers + 3 * kLanes);
}

void fill_dropout_mask(const DropoutKey& key, std::int64_t sample, double probability,
                       std::span<float> values, std::int64_t first) {
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const auto high = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); };
  const std::array<std::uint32_t, 4> mixed = philox(
      {low(key.step), high(key.step), low(key.module), high(key.module)}, {low(key.seed), high(key.seed)});
  const std::uint64_t stream = mixed[0] | std::uint64_t{mixed[1]} << 32;
  const auto threshold =
      static_cast<std::uint32_t>(std::min(std::ldexp(probability, 32), double{UINT32_MAX}));
  const auto kept = static_cast<float>(1.0 / (1.0 - probability));
  std::array<std::uint32_t, kGroup> numbers;
  std::size_t skipped = static_cast<std::size_t>(first) % kGroup;
  std::size_t group = static_cast<std::size_t>(first) - skipped;
  for (std::size_t begin = 0; begin < values.size(); group += kGroup) {
    random_group(group / 4, static_cast<std::uint64_t>(sample), stream, numbers.data());
    const std::size_t count = std::min(kGroup - skipped, values.size() - begin);
    const std::uint32_t* const drawn = numbers.data() + skipped;
    for (std::size_t i = 0; i < count; ++i) values[begin + i] = drawn[i] < threshold ? 0.0F : kept;
    begin += count;
    skipped = 0;
  }
}

namespace {

// FNV-1a: the same on every machine, which std::hash does not guarantee.
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
    // A task pays off from some ten thousand values.
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
