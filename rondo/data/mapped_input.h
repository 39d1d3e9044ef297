#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

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

}  // namespace rondo
