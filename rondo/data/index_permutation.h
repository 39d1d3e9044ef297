#pragma once

#include <array>
#include <cstdint>

namespace rondo {

// A permutation of the numbers below `size` that takes no memory: where a number goes is computed, by a
// Feistel network that is walked until it comes out below the size. Any thread.
class IndexPermutation {
 public:
  // `size` must be positive; another seed is another permutation.
  IndexPermutation(std::int64_t size, std::uint64_t seed);
  std::int64_t operator()(std::int64_t index) const;

 private:
  static constexpr int kRounds = 6;
  std::uint64_t size_;
  int half_bits_ = 1;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace rondo
