#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/dataset.h"

namespace rondo {

// A whole file, readable as memory without being copied: pages come and go with use and are shared by all
// processes of the host. The file must not be shortened while it is mapped (the kernel then kills whoever
// reads past the new end).
class MappedInput {
 public:
  // Throws DataError naming the file when it is missing, unreadable or not a regular file.
  explicit MappedInput(std::string path);
  ~MappedInput();
  MappedInput(MappedInput&& other) noexcept;
  MappedInput& operator=(MappedInput&& other) noexcept;
  MappedInput(const MappedInput&) = delete;
  MappedInput& operator=(const MappedInput&) = delete;

  const std::string& path() const { return path_; }
  // Empty for an empty file.
  std::span<const std::uint8_t> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  std::string path_;
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// What a data set is besides whose samples lie in files, one file behind the other.
class DataFiles {
 public:
  virtual ~DataFiles() = default;
  // The first sample of each file that has any, ascending, and the number of samples. A sample belongs to the
  // file in which it begins. Empty: the samples lie in no files.
  virtual std::vector<std::int64_t> file_starts() const = 0;
};

// That of `data`; empty where it lies in no files.
std::vector<std::int64_t> file_starts_of(const Dataset& data);

// Which samples of a data set are left where samples were chosen from it: `chosen` has their numbers. Empty
// where these do not ascend, since then files would not follow each other.
std::vector<std::int64_t> file_starts_of_chosen(const std::vector<std::int64_t>& starts,
                                                const std::vector<std::int64_t>& chosen);

// Starts of files that have samples: `starts` without those that begin where the next one does.
std::vector<std::int64_t> without_empty_files(std::vector<std::int64_t> starts);

}  // namespace rondo
