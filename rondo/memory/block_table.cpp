#include "rondo/memory/block_table.h"

#include <utility>

namespace rondo {
namespace {

constexpr int kFirstBits = 10;

}  // namespace

BlockTable::BlockTable() : slots_(std::size_t{1} << kFirstBits), shift_(64 - kFirstBits) {}

// Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4); the lowest bits of addresses are
// all zero.
std::size_t BlockTable::home(const void* address) const {
  const auto number = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address));
  return static_cast<std::size_t>(((number >> 4) * 0x9E3779B97F4A7C15ULL) >> shift_);
}

std::size_t BlockTable::place(const void* address) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = home(address);
  while (slots_[at].address != nullptr && slots_[at].address != address) at = (at + 1) & mask;
  return at;
}

std::optional<BlockTable::Block> BlockTable::insert(const void* address, const Block& block) {
  if (2 * (size_ + 1) > slots_.size()) grow();
  Slot& slot = slots_[place(address)];
  if (slot.address != nullptr) return std::exchange(slot.block, block);
  slot = {address, block};
  ++size_;
  return std::nullopt;
}

std::optional<BlockTable::Block> BlockTable::remove(const void* address) {
  std::size_t hole = place(address);
  if (slots_[hole].address == nullptr) return std::nullopt;
  const Block removed = slots_[hole].block;
  // Moves back what was pushed past the hole, so that no search ends too early (Knuth, algorithm 6.4R).
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = (hole + 1) & mask; slots_[at].address != nullptr; at = (at + 1) & mask) {
    const std::size_t wanted = home(slots_[at].address);
    if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
  --size_;
  return removed;
}

BlockTable::Block* BlockTable::find(const void* address) {
  Slot& slot = slots_[place(address)];
  return slot.address == nullptr ? nullptr : &slot.block;
}

void BlockTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  --shift_;
  for (const Slot& slot : old) {
    if (slot.address != nullptr) slots_[place(slot.address)] = slot;
  }
}

}  // namespace rondo
