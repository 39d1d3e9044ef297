#include "rondo/plan/mesh/recompute.h"

#include <algorithm>
#include <limits>
#include <map>

namespace rondo::plan {
namespace {

// Layers that save the same bytes, cheapest first: of these a search takes the first few.
struct RecomputeClass {
  std::uint64_t saved_bytes = 0;
  std::vector<std::size_t> layers;
  std::vector<double> seconds;  // of the first k
};

class CheapestSearch {
 public:
  explicit CheapestSearch(std::vector<RecomputeClass> classes) : classes_(std::move(classes)) {
    taken_.resize(classes_.size(), 0);
  }

  std::vector<std::size_t> run(std::uint64_t need) {
    look(0, need, 0);
    std::vector<std::size_t> layers;
    for (std::size_t i = 0; i < best_.size(); ++i)
      layers.insert(layers.end(), classes_[i].layers.begin(),
                    classes_[i].layers.begin() + static_cast<std::ptrdiff_t>(best_[i]));
    std::sort(layers.begin(), layers.end());
    return layers;
  }

 private:
  // No way to save the rest with classes from `from` on is cheaper: bytes at the price of the cheapest one.
  double least(std::size_t from, std::uint64_t need) const {
    double price = std::numeric_limits<double>::infinity();
    for (std::size_t i = from; i < classes_.size(); ++i)
      price = std::min(price, classes_[i].seconds[1] / static_cast<double>(classes_[i].saved_bytes));
    return need == 0 ? 0 : price * static_cast<double>(need);
  }

  void look(std::size_t at, std::uint64_t need, double seconds) {
    if (seconds + least(at, need) >= best_s_ || ++looked_ > kMostLooked) return;
    if (need == 0) {
      best_s_ = seconds;
      best_ = taken_;
      return;
    }
    if (at == classes_.size()) return;
    const RecomputeClass& own = classes_[at];
    const std::uint64_t enough =
        std::min<std::uint64_t>(own.layers.size(), (need + own.saved_bytes - 1) / own.saved_bytes);
    for (std::uint64_t count = enough + 1; count-- > 0;) {
      const std::uint64_t saved = count * own.saved_bytes;
      taken_[at] = count;
      look(at + 1, need > saved ? need - saved : 0, seconds + own.seconds[count]);
    }
    taken_[at] = 0;
  }

  // Far beyond what models of a few kinds of layers take.
  static constexpr int kMostLooked = 200'000;

  std::vector<RecomputeClass> classes_;
  std::vector<std::uint64_t> taken_, best_;
  double best_s_ = std::numeric_limits<double>::infinity();
  int looked_ = 0;
};

}  // namespace

std::vector<std::size_t> cheapest_recomputation(const std::vector<Recomputation>& layers,
                                                std::uint64_t need) {
  std::map<std::uint64_t, RecomputeClass, std::greater<>> by_bytes;
  std::vector<std::size_t> all;
  std::uint64_t savable = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].saved_bytes == 0) continue;
    RecomputeClass& own = by_bytes[layers[i].saved_bytes];
    own.saved_bytes = layers[i].saved_bytes;
    own.layers.push_back(i);
    all.push_back(i);
    savable += layers[i].saved_bytes;
  }
  if (need == 0) return {};
  if (savable <= need) return all;
  std::vector<RecomputeClass> classes;
  for (auto& [bytes, own] : by_bytes) {
    std::stable_sort(own.layers.begin(), own.layers.end(),
                     [&](std::size_t a, std::size_t b) { return layers[a].seconds < layers[b].seconds; });
    own.seconds = {0};
    for (const std::size_t layer : own.layers)
      own.seconds.push_back(own.seconds.back() + layers[layer].seconds);
    classes.push_back(std::move(own));
  }
  return CheapestSearch(std::move(classes)).run(need);
}

}  // namespace rondo::plan
