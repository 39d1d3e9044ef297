#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "rondo/channel/shared_memory.h"

namespace rondo {

// A caching allocator over one large sparse shared-memory file: what is allocated here, every rank of the
// host can read and write in place ("registered" memory). Blocks are page-aligned. A freed block is kept for
// the next request of its size class, so that a training step touches no fresh page; when more is cached than
// used, pages go back to the system. Any thread may call any method.
class SharedArena {
 public:
  // Reserves address space, not memory.
  explicit SharedArena(Bytes reserve);

  // A block of at least `bytes`, contents unspecified; nullptr when the reserve is used up. Throws Error that
  // names the size and the limit when there is not that much memory left.
  void* allocate(std::size_t bytes);
  // `pointer` must come from allocate and be released once.
  void release(void* pointer);

  bool contains(const void* pointer) const;
  // Position of `pointer` in the file; peers add it to their own mapping's address.
  std::uint64_t offset(const void* pointer) const;

  const SharedMemoryAddress& address() const { return published_.address; }
  const std::shared_ptr<SharedMemory>& memory() const { return published_.memory; }

  struct Usage {
    std::size_t used_bytes = 0;    // handed out, rounded to size classes
    std::size_t cached_bytes = 0;  // free, pages kept
    std::size_t peak_bytes = 0;    // largest used_bytes so far
  };
  Usage usage() const;

  // Bytes that a request of `bytes` occupies: a multiple of the page size, at most 1/8 more above 1 MiB.
  static std::size_t size_class(std::size_t bytes);

 private:
  void require_pages(std::size_t offset, std::size_t size);

  PublishedMemory published_;
  mutable std::mutex mutex_;                                   // protects everything below
  std::size_t next_ = 0;                                       // first byte never handed out
  std::unordered_map<std::size_t, std::size_t> allocated_;     // offset -> size class
  std::map<std::size_t, std::vector<std::size_t>> cached_;     // size class -> offsets, pages kept
  std::map<std::size_t, std::vector<std::size_t>> discarded_;  // size class -> offsets, pages given back
  Usage usage_;
  std::size_t known_room_ = 0;  // bytes of new pages that may be taken before looking at the system again
};

}  // namespace rondo
