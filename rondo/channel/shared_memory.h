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

// How another process finds a shared-memory file: it opens /proc/<pid>/fd/<descriptor>, which only the same
// user may do. `nonce` is random and stored in the file's first bytes by its maker, so that a recycled pid is
// noticed.
struct SharedMemoryAddress {
  pid_t pid = 0;
  int descriptor = -1;
  std::uint64_t nonce = 0;
};

// A mapped anonymous shared-memory file (memfd, mode 0600). It has no name in any file system, needs no room
// in /dev/shm, and is gone when the last process that maps it is gone, however that ended. Move-only.
class SharedMemory {
 public:
  // Makes a zero-filled file of `size`; pages cost memory only once touched. `label` shows in
  // /proc/<pid>/maps. Throws Error with the size and the limit that stands in the way.
  static SharedMemory create(const std::string& label, Bytes size);
  // Maps all of another process's file, readable and writable. Throws Error when that process or descriptor
  // is gone or belongs to another user.
  static SharedMemory open(pid_t pid, int descriptor);
  // Maps a descriptor that this process already has; it is duplicated.
  static SharedMemory adopt(int descriptor);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return {data_, size_}; }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int descriptor() const { return descriptor_; }
  // Takes the pages of [offset, offset + length) from the system now: where there are none, touching them
  // later would end the process. Throws Error that names the size, what it is for and how to get it; some of
  // the pages may be taken then.
  void commit(std::size_t offset, std::size_t length, const std::string& what) const;
  // Maps the pages of a stretch that was committed into this process, where the kernel can: who touches pages
  // here and there pays for none of them then. `offset` is a multiple of the page size.
  void map_pages(std::size_t offset, std::size_t length) const;
  // Gives the pages of [offset, offset + length) back to the system; they read as zero afterwards. Both
  // multiples of the page size.
  void discard(std::size_t offset, std::size_t length) const;
  // For a forked child: what this process writes from now on stays its own, at the same addresses.
  void make_private() const;

 private:
  SharedMemory(int descriptor, std::size_t size);
  int descriptor_ = -1;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A random number from the kernel; used as nonce.
std::uint64_t random_nonce();

// A shared-memory file that other ranks attach to; its first 8 bytes hold the nonce of `address`.
struct PublishedMemory {
  std::shared_ptr<SharedMemory> memory;
  SharedMemoryAddress address;
};

// Makes a file and stamps its nonce. Ranks that are threads of this process will attach to the very same
// mapping.
PublishedMemory publish_shared_memory(const std::string& label, Bytes size);

// Maps what another rank published, or returns the mapping this process already has. Throws Error when the
// process is gone or another one took its pid. Any thread.
std::shared_ptr<SharedMemory> attach_shared_memory(const SharedMemoryAddress& address);

// "pid:descriptor:nonce", to pass an address through a store.
std::string to_string(const SharedMemoryAddress& address);
SharedMemoryAddress parse_shared_memory_address(const std::string& text);

// How much more memory this process can touch before the kernel ends it.
struct MemoryRoom {
  Bytes bytes{~std::uint64_t{0}};
  std::string limit;  // what stands in the way, for people: "the memory limit of cgroup /jobs/7, 512.0 MiB"
};

// The least that the memory control groups of this process (versions 1 and 2, up to the root) and the system
// leave; page cache that can be dropped and swap count as room. Groups that cannot be seen do not count.
// `root` is where /proc and /sys are.
MemoryRoom memory_room(const std::filesystem::path& root = "/");

// Throws Error that names what is needed, what there is, and how to raise it, when `room` is less than
// `size`. `what` is what it is for: "the shared memory of group 'world'". A kernel that is out of memory does
// not refuse, it kills: so this looks first. Other processes may still take what was there.
void require_room(Bytes size, const std::string& what, const MemoryRoom& room = memory_room());

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
