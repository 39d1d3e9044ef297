#include "rondo/base/random.h"

namespace rondo {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ULL * counter[0];
    const std::uint64_t b = 0xCD9E8D57ULL * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

RandomStream::result_type RandomStream::operator()() {
  const std::uint64_t block = position_ / 4;
  const auto words = philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                             static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                            {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  return words[position_++ % 4];
}

std::uint64_t RandomStream::below(std::uint64_t bound) {
  const std::uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  while (true) {
    std::uint64_t value = (*this)();
    value = value << 32 | (*this)();
    if (value < limit) return value % bound;
  }
}

double RandomStream::uniform() {
  std::uint64_t value = (*this)();
  value = value << 32 | (*this)();
  return static_cast<double>(value >> 11) * 0x1p-53;
}

}  // namespace rondo
