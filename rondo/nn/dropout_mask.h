#pragma once

#include <cstdint>
#include <span>

namespace rondo {

// Writes the dropout mask of one sample from its value number `first` on: value number i is 0 with the given
// probability (in steps of 2^-32), else 1 / (1 - probability). It is a function of the arguments and of i
// alone: Philox4x32-10 with a key made of (seed, step, module) and a counter made of (sample, i). Any thread.
struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t module = 0;
};
void fill_dropout_mask(const DropoutKey& key, std::int64_t sample, double probability,
                       std::span<float> values, std::int64_t first = 0);

}  // namespace rondo
