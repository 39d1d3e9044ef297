#include "rondo/channel/shared_arena.h"

#include <algorithm>
#include <bit>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/memory_room.h"

namespace rondo {
namespace {

constexpr std::size_t kPage = 4096;
// Cached pages below this are always kept.
constexpr std::size_t kLeastCache = std::size_t{256} << 20;

constexpr std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

SharedArena::SharedArena(Bytes reserve)
    : published_(publish_shared_memory("rondo-arena", reserve)), next_(kPage) {}

std::size_t SharedArena::size_class(std::size_t bytes) {
  if (bytes <= (std::size_t{64} << 10)) return round_up(std::max<std::size_t>(bytes, 1), kPage);
  if (bytes <= (std::size_t{1} << 20)) return round_up(bytes, std::size_t{64} << 10);
  return round_up(bytes, std::bit_floor(bytes) / 8);
}

// Called with mutex_ held.
void SharedArena::require_pages(std::size_t offset, std::size_t size) {
  const std::string what = str("a tensor of ", to_string(Bytes{size}), " in registered memory");
  if (size > known_room_) {
    const MemoryRoom room = memory_room();
    require_room(Bytes{size}, what, room);
    // Looking costs more than a small block: an eighth of the room is taken on trust.
    known_room_ = std::max<std::size_t>(room.bytes.count / 8, size);
  }
  known_room_ -= size;
  published_.memory->commit(offset, size, what);
}

void* SharedArena::allocate(std::size_t bytes) {
  const std::size_t size = size_class(bytes);
  const std::lock_guard lock(mutex_);
  std::size_t offset = 0;
  if (auto cached = cached_.find(size); cached != cached_.end() && !cached->second.empty()) {
    offset = cached->second.back();
    cached->second.pop_back();
    usage_.cached_bytes -= size;
  } else if (auto discarded = discarded_.find(size);
             discarded != discarded_.end() && !discarded->second.empty()) {
    offset = discarded->second.back();
    require_pages(offset, size);
    discarded->second.pop_back();
  } else {
    if (size > published_.memory->size() - next_) return nullptr;
    require_pages(next_, size);
    offset = next_;
    next_ += size;
  }
  allocated_[offset] = size;
  usage_.used_bytes += size;
  usage_.peak_bytes = std::max(usage_.peak_bytes, usage_.used_bytes);
  return published_.memory->data() + offset;
}

void SharedArena::release(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = allocated_.find(offset(pointer));
  if (found == allocated_.end()) throw Error("released a block that this arena did not hand out");
  const auto [block, size] = *found;
  allocated_.erase(found);
  usage_.used_bytes -= size;
  if (usage_.cached_bytes + size > std::max(kLeastCache, usage_.peak_bytes)) {
    published_.memory->discard(block, size);
    discarded_[size].push_back(block);
  } else {
    usage_.cached_bytes += size;
    cached_[size].push_back(block);
  }
}

bool SharedArena::contains(const void* pointer) const {
  const auto* at = static_cast<const std::byte*>(pointer);
  return at >= published_.memory->data() && at < published_.memory->data() + published_.memory->size();
}

std::uint64_t SharedArena::offset(const void* pointer) const {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(pointer) - published_.memory->data());
}

SharedArena::Usage SharedArena::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

}  // namespace rondo
