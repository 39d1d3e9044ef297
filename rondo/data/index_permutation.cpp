#include "rondo/data/index_permutation.h"

#include <algorithm>
#include <bit>

#include "rondo/base/random.h"

namespace rondo {
namespace {

// Steele, Lea and Flood's mixing of 64 bits (SplitMix, 2014).
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

}  // namespace

IndexPermutation::IndexPermutation(std::int64_t size, std::uint64_t seed)
    : size_(static_cast<std::uint64_t>(size)) {
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2);
  RandomStream random(seed, /*stream=*/2);
  for (std::uint64_t& key : keys_) key = (std::uint64_t{random()} << 32) | random();
}

std::int64_t IndexPermutation::operator()(std::int64_t index) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<std::uint64_t>(index);
  // The network permutes the numbers of its bits, fewer than four times as many as are wanted.
  do {
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t next = left ^ (mixed(right ^ key) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

}  // namespace rondo
