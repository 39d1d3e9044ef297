#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

// A half-open range of elements.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

// Where the parameters of a unit lie in its flat buffer, which part of it each rank owns, and in which blocks
// it travels. Positions are in elements.
//
// Parameters follow one another, each at a multiple of kAlignment; the end is padded so that every rank owns
// an equally long, contiguous shard: rank r has [r, r + 1) * shard_elements(). A block is the same range of
// every rank's shard, so every rank takes an equal part in every block's communication.
class FlatLayout {
 public:
  // Parameters begin on cache lines (16 float32), shards too.
  static constexpr std::int64_t kAlignment = 16;

  // `block_elements`: about how many elements of the flat buffer one block moves; 0 for a single block.
  FlatLayout(std::span<const std::int64_t> parameter_elements, int ranks, std::int64_t block_elements = 0);

  int ranks() const { return ranks_; }
  std::size_t parameters() const { return places_.size(); }
  std::int64_t flat_elements() const { return shard_elements_ * ranks_; }
  std::int64_t shard_elements() const { return shard_elements_; }
  ElementRange shard(int rank) const { return {shard_elements_ * rank, shard_elements_ * (rank + 1)}; }
  // Range of the flat buffer that parameter `index` fills.
  ElementRange place(std::size_t index) const { return places_[index]; }
  // The part of parameter `index` that `rank` owns: the range within the parameter, and where it begins in
  // the rank's shard. May be empty.
  struct Slice {
    ElementRange of_parameter;
    std::int64_t in_shard = 0;
  };
  Slice slice(std::size_t index, int rank) const;

  // Number of blocks, and the range of every rank's shard that block `index` moves.
  std::size_t blocks() const { return blocks_; }
  ElementRange block(std::size_t index) const;

 private:
  int ranks_;
  std::vector<ElementRange> places_;
  std::int64_t shard_elements_ = 0;
  std::int64_t block_shard_elements_ = 0;  // of each shard, in every block but perhaps the last
  std::size_t blocks_ = 1;
};

}  // namespace rondo
