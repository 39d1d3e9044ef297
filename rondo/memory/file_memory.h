#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "rondo/base/bytes.h"

namespace rondo {

class MemoryTracker;

// Memory mapped from a file: shared with the page cache, so the kernel can write it out and reclaim the
// memory. The file has no name after the constructor, so nothing is left of it when the process ends, even if
// it is killed. Counts as file bytes of replica_memory_tracker(). Initially zero.
class FileMemory {
 public:
  // Reserves all of the disk space before the first use, so that a full disk is an error here and not a
  // signal later. `what` is the purpose, for messages. Throws Error naming the file, the bytes needed, the
  // free bytes and remedies.
  FileMemory(const std::filesystem::path& file, Bytes bytes, const std::string& what);
  ~FileMemory();
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  // Returns the page-aligned start of the memory.
  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }

 private:
  Bytes size_;
  std::byte* data_ = nullptr;
  MemoryTracker& tracker_;
};

}  // namespace rondo
