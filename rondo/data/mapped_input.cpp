#include "rondo/data/mapped_input.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

MappedInput::MappedInput(std::string path) : path_(std::move(path)) {
  // Non-blocking, so that a named pipe is refused below instead of waited for.
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) throw DataError(str("cannot open '", path_, "': ", errno_text(errno)));
  struct stat status {};
  if (::fstat(file.number(), &status) != 0)
    throw DataError(str("cannot read '", path_, "': ", errno_text(errno)));
  if (!S_ISREG(status.st_mode)) throw DataError(str("'", path_, "' is not a file"));
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number(), 0);
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

}  // namespace rondo
