#include "rondo/parallel/sharded/flat_layout.h"

#include "rondo/base/arithmetic.h"

#include <algorithm>

namespace rondo {
namespace {

std::int64_t aligned(std::int64_t elements) {
  return divide_rounding_up(elements, FlatLayout::kAlignment) * FlatLayout::kAlignment;
}

}  // namespace

FlatLayout::FlatLayout(std::span<const std::int64_t> parameter_elements, int ranks,
                       std::int64_t block_elements)
    : ranks_(ranks) {
  std::int64_t end = 0;
  for (const std::int64_t elements : parameter_elements) {
    places_.push_back({end, end + elements});
    end = aligned(end + elements);
  }
  shard_elements_ = aligned(std::max<std::int64_t>(1, divide_rounding_up(end, ranks)));
  block_shard_elements_ = shard_elements_;
  if (block_elements > 0) {
    // Equal blocks: a short last one would pay a message's latency for little.
    const std::int64_t wanted = std::max<std::int64_t>(1, block_elements / ranks);
    const std::int64_t count = std::max<std::int64_t>(1, (shard_elements_ + wanted / 2) / wanted);
    block_shard_elements_ = aligned(divide_rounding_up(shard_elements_, count));
  }
  blocks_ = static_cast<std::size_t>(divide_rounding_up(shard_elements_, block_shard_elements_));
}

FlatLayout::Slice FlatLayout::slice(std::size_t index, int rank) const {
  const ElementRange place = places_[index];
  const ElementRange owned = shard(rank);
  const std::int64_t begin = std::clamp(owned.begin, place.begin, place.end);
  const std::int64_t end = std::clamp(owned.end, place.begin, place.end);
  if (begin >= end) return {};
  return {{begin - place.begin, end - place.begin}, begin - owned.begin};
}

ElementRange FlatLayout::block(std::size_t index) const {
  const std::int64_t begin = static_cast<std::int64_t>(index) * block_shard_elements_;
  return {begin, std::min(shard_elements_, begin + block_shard_elements_)};
}

}  // namespace rondo
