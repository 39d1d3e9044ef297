#pragma once

#include <array>
#include <cstdint>

namespace rondo {

// Computes Philox4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3", SC'11). The result depends only on key and counter, so streams need no state and no order of use.
// Random draws for a sample therefore do not depend on the number of ranks.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// A stream of random numbers named by (seed, stream). Satisfies UniformRandomBitGenerator.
class RandomStream {
 public:
  using result_type = std::uint32_t;  // type of one draw
  // Creates a stream; different streams of one seed are independent.
  explicit RandomStream(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  static constexpr result_type min() { return 0; }           // the smallest draw
  static constexpr result_type max() { return UINT32_MAX; }  // the largest draw
  result_type operator()();                                  // returns the next 32 random bits

  // Returns a uniform value in [0, bound) without modulo bias. `bound` must be positive.
  std::uint64_t below(std::uint64_t bound);
  // Returns a uniform value in [0, 1).
  double uniform();

  // Returns the number of 32-bit words drawn so far. seek() restores it, which makes a stream resumable.
  std::uint64_t position() const { return position_; }
  void seek(std::uint64_t position) { position_ = position; }  // the next draw is the one at `position`

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t position_ = 0;
};

}  // namespace rondo
