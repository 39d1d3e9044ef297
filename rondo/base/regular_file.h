#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "rondo/base/bytes.h"

namespace rondo {

// How rondo opens every file that it reads: only regular files, found out on the open descriptor, without
// ever waiting for a named pipe's writer or a device.
class RegularFile {
 public:
  // Links are followed. Throws DataError naming the path and what it is instead.
  explicit RegularFile(std::filesystem::path path);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::size_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
};

// "a named pipe", "a device", for messages; `mode` as stat has it.
std::string kind_of_file(unsigned mode);

// The content of a regular file. Throws DataError when it cannot be read or is larger than `limit`.
std::string read_regular_file(const std::filesystem::path& path, Bytes limit = MiB(256));

}  // namespace rondo
