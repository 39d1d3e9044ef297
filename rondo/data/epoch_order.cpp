#include "rondo/data/epoch_order.h"

#include "rondo/base/random.h"
#include "rondo/data/sampler.h"

namespace rondo {

std::function<std::vector<std::int64_t>(std::uint64_t seed)> epoch_order_of(
    const std::shared_ptr<const Dataset>& data) {
  if (dynamic_cast<const EpochOrder*>(data.get()) == nullptr) return {};
  return [data](std::uint64_t seed) { return dynamic_cast<const EpochOrder&>(*data).shuffled(seed); };
}

std::vector<std::int64_t> order_of_shards(std::span<const std::int64_t> starts, std::int64_t window,
                                          std::uint64_t seed) {
  const std::int64_t size = starts.back();
  const auto shards = static_cast<std::int64_t>(starts.size()) - 1;
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(size));
  std::vector<std::int64_t> waiting;
  RandomStream random(seed, /*stream=*/1);
  const auto draw = [&] {
    std::int64_t& drawn = waiting[random.below(waiting.size())];
    order.push_back(drawn);
    drawn = waiting.back();
    waiting.pop_back();
  };
  for (const std::int64_t shard : random_permutation(shards, seed)) {
    const auto at = static_cast<std::size_t>(shard);
    for (std::int64_t sample = starts[at]; sample < starts[at + 1]; ++sample) {
      waiting.push_back(sample);
      if (static_cast<std::int64_t>(waiting.size()) >= window) draw();
    }
  }
  while (!waiting.empty()) draw();
  return order;
}

}  // namespace rondo
