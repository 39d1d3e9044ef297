#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "rondo/base/bytes.h"

namespace rondo {

// The address by which another process opens a shared-memory file: /proc/<pid>/fd/<descriptor>, which only
// the same user may open. `nonce` is random and stored in the file's first bytes by its creator, so that a
// recycled pid is detected.
struct SharedMemoryAddress {
  pid_t pid = 0;
  int descriptor = -1;
  std::uint64_t nonce = 0;
};

// A mapped anonymous shared-memory file (memfd, mode 0600). The file has no name in any file system, needs no
// space in /dev/shm, and is freed with the last process that maps it, even if that is killed. Move-only.
class SharedMemory {
 public:
  // Creates a zero-filled file of `size`; pages use memory only after the first access. `label` appears in
  // /proc/<pid>/maps. Throws Error with the size and the limit that prevents it.
  static SharedMemory create(const std::string& label, Bytes size);
  // Maps another process's file, readable and writable. Throws Error if that process or descriptor does not
  // exist or belongs to another user.
  static SharedMemory open(pid_t pid, int descriptor);
  // Maps a descriptor of this process, which is duplicated.
  static SharedMemory adopt(int descriptor);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return {data_, size_}; }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int descriptor() const { return descriptor_; }
  // Allocates the pages of [offset, offset + length) now: without memory for them, a later access would kill
  // the process. Throws Error that names the size, the purpose and remedies; some of the pages may be
  // allocated then.
  void commit(std::size_t offset, std::size_t length, const std::string& what) const;
  // Maps committed pages into this process, if the kernel supports it, to avoid page faults at scattered
  // accesses. `offset` is a multiple of the page size.
  void map_pages(std::size_t offset, std::size_t length) const;
  // Returns the pages of [offset, offset + length) to the system; they read as zero afterwards. Both are
  // multiples of the page size.
  void discard(std::size_t offset, std::size_t length) const;
  // Makes later writes of this process private, at the same addresses. For a forked child.
  void make_private() const;

 private:
  SharedMemory(int descriptor, std::size_t size);
  int descriptor_ = -1;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Returns a random number from the kernel, for use as a nonce.
std::uint64_t random_nonce();

// A shared-memory file that other ranks attach to; its first 8 bytes hold the nonce of `address`.
struct PublishedMemory {
  std::shared_ptr<SharedMemory> memory;
  SharedMemoryAddress address;
};

// Creates a file and writes its nonce. Ranks that are threads of this process attach to the same mapping.
PublishedMemory publish_shared_memory(const std::string& label, Bytes size);

// Maps the memory that another rank published, or returns the existing mapping of this process. Throws Error
// if the process has ended or another one has its pid. Any thread.
std::shared_ptr<SharedMemory> attach_shared_memory(const SharedMemoryAddress& address);

// Convert an address to "pid:descriptor:nonce" and back, to pass it through a store.
std::string to_string(const SharedMemoryAddress& address);
SharedMemoryAddress parse_shared_memory_address(const std::string& text);

// Memory that this process can still use before the kernel kills it.
struct MemoryRoom {
  Bytes bytes{~std::uint64_t{0}};
  std::string limit;  // the limit in words: "the memory limit of cgroup /jobs/7, 512.0 MiB"
};

// Returns the smallest room left by the memory control groups of this process (versions 1 and 2, up to the
// root) and by the system; page cache that can be dropped and swap count as room. Ignores groups that are not
// visible. `root` is the folder of /proc and /sys.
MemoryRoom memory_room(const std::filesystem::path& root = "/");

// Throws Error that names the need, the room and remedies, if `room` is less than `size`. `what` is the
// purpose: "the shared memory of group 'world'". A kernel without memory does not refuse an access, it kills:
// so this check comes first. Other processes may still use the memory afterwards.
void require_room(Bytes size, const std::string& what, const MemoryRoom& room = memory_room());

// A caching allocator over one large sparse shared-memory file: every rank of the host can read and write its
// blocks in place ("registered" memory). Blocks are page-aligned. A freed block is kept for the next request
// of its size class, so that a training step uses no fresh page; if more is cached than used, pages are
// returned to the system. Any thread may call any method.
class SharedArena {
 public:
  // Reserves address space, not memory.
  explicit SharedArena(Bytes reserve);

  // Allocates at least `bytes`, contents unspecified. Returns nullptr if the reserve is used up. Throws Error
  // that names the size and the limit if there is not enough memory left.
  void* allocate(std::size_t bytes);
  // Releases a block of allocate(); once.
  void release(void* pointer);

  bool contains(const void* pointer) const;
  // Returns the offset of `pointer` in the file, which peers add to the address of their own mapping.
  std::uint64_t offset(const void* pointer) const;

  const SharedMemoryAddress& address() const { return published_.address; }
  const std::shared_ptr<SharedMemory>& memory() const { return published_.memory; }

  struct Usage {
    std::size_t used_bytes = 0;    // allocated, rounded to size classes
    std::size_t cached_bytes = 0;  // free, pages kept
    std::size_t peak_bytes = 0;    // largest used_bytes so far
  };
  Usage usage() const;

  // Returns the bytes that a request of `bytes` occupies: a multiple of the page size, at most 1/8 more above
  // 1 MiB.
  static std::size_t size_class(std::size_t bytes);

 private:
  void require_pages(std::size_t offset, std::size_t size);

  PublishedMemory published_;
  mutable std::mutex mutex_;                                   // protects everything below
  std::size_t next_ = 0;                                       // first byte never allocated
  std::unordered_map<std::size_t, std::size_t> allocated_;     // offset -> size class
  std::map<std::size_t, std::vector<std::size_t>> cached_;     // size class -> offsets, pages kept
  std::map<std::size_t, std::vector<std::size_t>> discarded_;  // size class -> offsets, pages returned
  Usage usage_;
  std::size_t known_room_ =
      0;  // bytes of new pages that may be allocated before the next check of available memory
};

}  // namespace rondo
