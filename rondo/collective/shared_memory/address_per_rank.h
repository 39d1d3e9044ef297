#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace rondo::shared_memory {

// An array with one address per rank, without an allocation for the usual number of ranks.
template <class Pointer>
class AddressPerRank {
 public:
  explicit AddressPerRank(int ranks) : size_(static_cast<std::size_t>(ranks)) {
    if (size_ > few_.size()) many_.resize(size_);
  }
  Pointer& operator[](std::size_t rank) { return data()[rank]; }
  std::span<const Pointer> span() { return {data(), size_}; }

 private:
  Pointer* data() { return many_.empty() ? few_.data() : many_.data(); }

  std::size_t size_;
  std::array<Pointer, 16> few_;
  std::vector<Pointer> many_;
};

}  // namespace rondo::shared_memory
