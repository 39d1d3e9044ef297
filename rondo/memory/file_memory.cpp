#include "rondo/memory/file_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/memory/tracker.h"

namespace rondo {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, Bytes bytes, const std::string& what, int code) {
  std::string free;
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(file.parent_path(), unknown);
  if (!unknown) free = str(", of which ", to_string(Bytes{space.available}), " are free");
  throw Error(str("the file ", file.string(), " for ", what, " needs ", to_string(bytes), free, ": ",
                  errno_text(code), "; free space there, name another directory, or do without offload"));
}

}  // namespace

FileMemory::FileMemory(const std::filesystem::path& file, Bytes bytes, const std::string& what)
    : size_(bytes), tracker_(replica_memory_tracker()) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) fail(file, bytes, what, errno);
  const auto length = static_cast<std::size_t>(bytes.count);
  int error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(length));
  void* mapped = MAP_FAILED;
  if (error == 0) {
    mapped = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) error = errno;
  }
  ::close(descriptor);
  ::unlink(file.c_str());
  if (error != 0) fail(file, bytes, what, error);
  data_ = static_cast<std::byte*>(mapped);
  tracker_.add_file_bytes(size_.count);
}

FileMemory::~FileMemory() {
  ::munmap(data_, static_cast<std::size_t>(size_.count));
  tracker_.remove_file_bytes(size_.count);
}

}  // namespace rondo
