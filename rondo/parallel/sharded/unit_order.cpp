#include "rondo/parallel/sharded/unit_order.h"

#include <algorithm>
#include <numeric>

namespace rondo {

UnitOrder::UnitOrder(std::size_t units, std::size_t roots) : order_(units), roots_(roots) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  position_ = order_;
}

void UnitOrder::see(std::size_t unit, std::size_t seen) {
  if (is_fixed_) return;
  const auto from = std::find(order_.begin(), order_.end(), unit);
  const auto to = order_.begin() + static_cast<std::ptrdiff_t>(std::min(seen + roots_, order_.size() - 1));
  if (to < from) std::rotate(to, from, from + 1);
  for (std::size_t i = 0; i < order_.size(); ++i) position_[order_[i]] = i;
}

}  // namespace rondo
