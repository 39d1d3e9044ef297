#include "rondo/data/kept_samples.h"

#include <numeric>

namespace rondo {

std::vector<std::size_t> kept_places(std::span<const std::int64_t> asked, const Batch& batch) {
  std::vector<std::size_t> places(static_cast<std::size_t>(batch.samples));
  if (places.size() == asked.size()) {
    std::iota(places.begin(), places.end(), std::size_t{0});
    return places;
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < places.size(); ++i, ++at) {
    while (asked[at] != batch.indices[i]) ++at;
    places[i] = at;
  }
  return places;
}

void rename_samples(Batch& batch, std::span<const std::int64_t> asked, std::span<const std::int64_t> names) {
  if (batch.indices.empty()) return;
  const std::vector<std::size_t> places = kept_places(asked, batch);
  for (std::size_t i = 0; i < places.size(); ++i) batch.indices[i] = names[places[i]];
}

}  // namespace rondo
