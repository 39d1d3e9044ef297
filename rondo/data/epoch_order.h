#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "rondo/data/dataset.h"

namespace rondo {

// What a data set is besides that is not to be read in any order: shards, of which far apart samples are slow
// to read.
class EpochOrder {
 public:
  virtual ~EpochOrder() = default;
  // The order of a training epoch: every sample once. `seed` is another one in every epoch.
  virtual std::vector<std::int64_t> shuffled(std::uint64_t seed) const = 0;
};

// That of `data`; nothing where any order will do.
std::function<std::vector<std::int64_t>(std::uint64_t seed)> epoch_order_of(
    const std::shared_ptr<const Dataset>& data);

// The order for shards: `starts` has the first sample of each and the number of samples. Shards come in
// random order, and samples are drawn from a window that moves over them, so that what is read at a time is
// no more than `window` samples and the shard that comes next.
std::vector<std::int64_t> order_of_shards(std::span<const std::int64_t> starts, std::int64_t window,
                                          std::uint64_t seed);

}  // namespace rondo
