#pragma once

#include <cstddef>
#include <vector>

namespace rondo {

// The units of a model, by number, in the order of forward as far as that was seen. One thread.
class UnitOrder {
 public:
  // Of `units`, the first `roots` of which have no forward pass of their own.
  UnitOrder(std::size_t units, std::size_t roots);

  std::size_t size() const { return order_.size(); }
  std::size_t operator[](std::size_t position) const { return order_[position]; }
  auto begin() const { return order_.begin(); }
  auto end() const { return order_.end(); }
  std::size_t position(std::size_t unit) const { return position_[unit]; }
  bool is_last(std::size_t unit) const { return position_[unit] + 1 == order_.size(); }

  // The first forward pass of a unit has begun, and `seen` other units had theirs before. It moves to where
  // it is seen; what was never seen stays at the end.
  void see(std::size_t unit, std::size_t seen);
  // Backward has begun: the order stays as it is.
  void fix() { is_fixed_ = true; }

 private:
  std::vector<std::size_t> order_;
  std::vector<std::size_t> position_;  // by unit
  const std::size_t roots_;
  bool is_fixed_ = false;
};

}  // namespace rondo
