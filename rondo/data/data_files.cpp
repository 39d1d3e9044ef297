#include "rondo/data/data_files.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"

namespace rondo {

MappedInput::MappedInput(std::string path) : path_(std::move(path)) {
  const RegularFile file(path_);
  size_ = file.size();
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (mapped == MAP_FAILED) {
    const std::string hint = errno == ENOMEM
                                 ? " (too many files mapped? see /proc/sys/vm/max_map_count; join small "
                                   "files into larger ones)"
                                 : "";
    throw DataError(str("cannot map '", path_, "' of ", size_, " bytes: ", errno_text(errno), hint));
  }
  data_ = static_cast<const std::uint8_t*>(mapped);
}

MappedInput::~MappedInput() {
  if (data_ != nullptr) ::munmap(const_cast<std::uint8_t*>(data_), size_);
}

MappedInput::MappedInput(MappedInput&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedInput& MappedInput::operator=(MappedInput&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::vector<std::int64_t> file_starts_of(const Dataset& data) {
  const auto* files = dynamic_cast<const DataFiles*>(&data);
  return files == nullptr ? std::vector<std::int64_t>() : files->file_starts();
}

std::vector<std::int64_t> file_starts_of_chosen(const std::vector<std::int64_t>& starts,
                                                const std::vector<std::int64_t>& chosen) {
  if (!std::is_sorted(chosen.begin(), chosen.end())) return {};
  std::vector<std::int64_t> result;
  for (const std::int64_t start : starts)
    result.push_back(std::lower_bound(chosen.begin(), chosen.end(), start) - chosen.begin());
  return without_empty_files(std::move(result));
}

std::vector<std::int64_t> without_empty_files(std::vector<std::int64_t> starts) {
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  return starts;
}

}  // namespace rondo
