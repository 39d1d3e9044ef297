#include "rondo/nn/dropout_mask.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "rondo/base/random.h"

// The generator runs once per instruction set of the processor, the fastest being chosen when the program is
// loaded. Integers give the same bits on all of them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define RONDO_FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RONDO_FOR_EACH_PROCESSOR
#endif

namespace rondo {
namespace {

// Counters that are advanced side by side: loops over them become vector instructions.
constexpr std::size_t kLanes = 32;
constexpr std::size_t kGroup = 4 * kLanes;  // numbers that one call of `random_group` gives

}  // namespace

// rondo::philox() for kLanes counters that follow each other from `block` on. Number w * kLanes + l is word w
// of counter l.
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

}  // namespace rondo
