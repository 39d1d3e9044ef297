#pragma once

#include <torch/types.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "rondo/nn/shard.h"

namespace rondo::testing {

// A generator of boxes, boxes of equal blocks, and ranges of both, at random places of tensors with up to
// four dimensions.
class RandomShards {
 public:
  explicit RandomShards(unsigned seed) : generator_(seed) {}

  std::int64_t number(std::int64_t from, std::int64_t to) {  // inclusive limits
    return std::uniform_int_distribution<std::int64_t>(from, to)(generator_);
  }

  std::vector<std::int64_t> sizes() {
    std::vector<std::int64_t> result(static_cast<std::size_t>(number(0, 4)));
    for (std::int64_t& size : result) size = number(1, 5);
    return result;
  }

  Shard box(const std::string& name, const std::vector<std::int64_t>& sizes) {
    Shard shard{.name = name, .global_sizes = sizes};
    for (const std::int64_t size : sizes) {
      shard.offsets.push_back(number(0, size - 1));
      shard.sizes.push_back(number(1, size - shard.offsets.back()));
    }
    return shard;
  }

  // Returns a box, a range of a box, or either of them in each of several blocks; sometimes empty.
  Shard shard(const std::string& name, const std::vector<std::int64_t>& sizes) {
    std::vector<std::int64_t> block = sizes;
    std::int64_t blocks = 1;
    if (!sizes.empty() && number(0, 1) == 0) {
      blocks = number(1, sizes.front());
      while (sizes.front() % blocks != 0) --blocks;
      block.front() /= blocks;
    }
    Shard shard = box(name, block);
    shard.global_sizes = sizes;
    shard.blocks = blocks;
    if (number(0, 2) == 0) return shard;
    const std::int64_t elements = shard.elements();
    const std::int64_t begin = number(0, elements);
    shard.within = FlatRange{begin, number(begin, elements)};
    return shard;
  }

 private:
  std::mt19937 generator_;
};

}  // namespace rondo::testing
