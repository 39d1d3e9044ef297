#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

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

}  // namespace rondo
