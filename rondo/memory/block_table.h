#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rondo/memory/scope.h"

namespace rondo {

// Size and label of every block alive, by address: a hash table with open addressing in one array, because a
// training step adds and removes thousands of blocks. One thread at a time.
class BlockTable {
 public:
  struct Block {
    std::uint64_t bytes = 0;
    MemoryLabel label;
  };

  BlockTable();

  // Returns what was known of the address before: a block that went without remove().
  std::optional<Block> insert(const void* address, const Block& block);
  std::optional<Block> remove(const void* address);
  // Null for an unknown address. Valid until the next insert or remove.
  Block* find(const void* address);
  std::size_t size() const { return size_; }

 private:
  struct Slot {
    const void* address = nullptr;  // null is free
    Block block;
  };
  std::size_t home(const void* address) const;
  // The slot of `address`, or the free one where it would go.
  std::size_t place(const void* address) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two of them, at most half in use
  int shift_;                // 64 - log2(slots)
  std::size_t size_ = 0;
};

}  // namespace rondo
