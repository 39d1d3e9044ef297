#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "rondo/base/bytes.h"

namespace rondo {

class MemoryTracker;

// Memory that is a file: mapped, shared with the page cache, so the kernel can write it out and take the
// memory back. The file has no name from the constructor's end on, so nothing is left of it when the process
// ends, however it ends. On the memory tracker of replica_memory_tracker() as file bytes. Zero at first.
class FileMemory {
 public:
  // Reserves all of the disk space before the first use: a full disk is an error here and not a signal later.
  // `what` it is for is part of messages. Throws Error naming the file, the bytes needed and those that are
  // free, and what to do.
  FileMemory(const std::filesystem::path& file, Bytes bytes, const std::string& what);
  ~FileMemory();
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  // Page-aligned.
  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }

 private:
  Bytes size_;
  std::byte* data_ = nullptr;
  MemoryTracker& tracker_;
};

}  // namespace rondo
