#include "rondo/format/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

std::string space_hint(const std::filesystem::path& path, int error_code) {
  if (error_code != ENOSPC && error_code != EDQUOT) return {};
  struct statvfs status {};
  std::string hint;
  if (::statvfs(path.parent_path().empty() ? "." : path.parent_path().c_str(), &status) == 0) {
    hint = str(" (", to_string(Bytes{status.f_bavail * status.f_frsize}), " free of ",
               to_string(Bytes{status.f_blocks * status.f_frsize}), ")");
  }
  return hint + "; free some space or choose another directory";
}

int open_for(const std::filesystem::path& path, OutputFile::Mode mode) {
  int flags = O_WRONLY | O_CREAT | O_CLOEXEC;
  switch (mode) {
    case OutputFile::Mode::create:
      flags |= O_EXCL;
      break;
    case OutputFile::Mode::truncate:
      flags |= O_TRUNC;
      break;
    case OutputFile::Mode::append:
      flags |= O_APPEND;
      break;
  }
  const int descriptor = ::open(path.c_str(), flags, 0644);
  if (descriptor < 0) {
    const int code = errno;
    throw Error(str("cannot create ", path.string(), ": ", errno_text(code), space_hint(path, code)));
  }
  return descriptor;
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path, Mode mode)
    : path_(std::move(path)), descriptor_(open_for(path_, mode)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      written_(other.written_) {}

void OutputFile::fail(int error_code) const {
  throw Error(str("cannot write ", path_.string(), " at byte ", written_, ": ", errno_text(error_code),
                  space_hint(path_, error_code)));
}

void OutputFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    // Linux writes at most 2 GiB a call.
    const ssize_t count = ::write(descriptor_, data.data(), std::min<std::size_t>(data.size(), 1U << 30));
    if (count < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    data = data.subspan(static_cast<std::size_t>(count));
    written_ += static_cast<std::uint64_t>(count);
  }
}

void OutputFile::reserve(Bytes size) {
  if (size.count == 0) return;
  int result = 0;
  do {
    result = ::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size.count));
  } while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) fail(errno);
}

void OutputFile::sync() {
  if (::fsync(descriptor_) != 0) fail(errno);
}

void OutputFile::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail(errno);
}

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw DataError(str("cannot open ", path_.string(), ": ", errno_text(errno)));
  struct stat status {};
  int code = ::fstat(descriptor, &status) == 0 ? 0 : errno;
  if (code == 0 && !S_ISREG(status.st_mode)) code = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  if (code == 0 && status.st_size > 0) {
    size_ = static_cast<std::size_t>(status.st_size);
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      code = errno;
    } else {
      data_ = static_cast<const std::byte*>(address);
    }
  }
  ::close(descriptor);
  if (code != 0) throw DataError(str("cannot read ", path_.string(), ": ", errno_text(code)));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

std::string read_text_file(const std::filesystem::path& path, Bytes limit) {
  const MappedFile file(path);
  if (file.bytes().size() > limit.count) {
    throw DataError(str(path.string(), " has ", to_string(Bytes{file.bytes().size()}), ", expected at most ",
                        to_string(limit)));
  }
  if (file.bytes().empty()) return {};
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void replace_text_file(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = str(path.string(), ".", ::getpid(), ".tmp");
  try {
    OutputFile file(temporary, OutputFile::Mode::truncate);
    file.write(text);
    file.sync();
    file.close();
    std::filesystem::rename(temporary, path);
  } catch (const std::exception& e) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw Error(e.what());
  }
  sync_directory(path.parent_path());
}

void sync_directory(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory.empty() ? std::filesystem::path(".") : directory;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw Error(str("cannot open directory ", path.string(), ": ", errno_text(errno)));
  const int result = ::fsync(descriptor);
  const int code = errno;
  ::close(descriptor);
  // Some network file systems cannot sync a directory; they order the rename themselves.
  if (result != 0 && code != EINVAL) {
    throw Error(str("cannot write directory ", path.string(), " to disk: ", errno_text(code)));
  }
}

}  // namespace rondo
