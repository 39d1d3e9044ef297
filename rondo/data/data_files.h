#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/dataset.h"

namespace rondo {

// A file mapped into memory for reading, without a copy. All processes of the host share its pages. The file
// must not be truncated while it is mapped: reading beyond the new end raises SIGBUS.
class MappedInput {
 public:
  // Throws DataError naming the file if it is missing, unreadable or not a regular file.
  explicit MappedInput(std::string path);
  ~MappedInput();
  MappedInput(MappedInput&& other) noexcept;
  MappedInput& operator=(MappedInput&& other) noexcept;
  MappedInput(const MappedInput&) = delete;
  MappedInput& operator=(const MappedInput&) = delete;

  const std::string& path() const { return path_; }
  // Returns the content; empty for an empty file.
  std::span<const std::uint8_t> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  std::string path_;
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// Interface of data sets with samples in files, one file after another.
class DataFiles {
 public:
  virtual ~DataFiles() = default;
  // Returns the first sample of each non-empty file in ascending order, then the number of samples. A sample
  // belongs to the file in which it begins. Empty: the samples are not in files.
  virtual std::vector<std::int64_t> file_starts() const = 0;
};

// Returns the file starts of `data`; empty if its samples are not in files.
std::vector<std::int64_t> file_starts_of(const Dataset& data);

// Returns the file starts of a subset with the sample numbers `chosen`. Empty if these do not ascend, because
// files would then be interleaved.
std::vector<std::int64_t> file_starts_of_chosen(const std::vector<std::int64_t>& starts,
                                                const std::vector<std::int64_t>& chosen);

// Removes the starts of files without samples: those equal to the next one.
std::vector<std::int64_t> without_empty_files(std::vector<std::int64_t> starts);

}  // namespace rondo
