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
#include "rondo/base/file_space.h"
#include "rondo/base/output.h"
#include "rondo/base/regular_file.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Bytes of a large file that go to the disk together.
constexpr std::size_t kFlush = std::size_t{8} << 20;

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

int open_for(const std::filesystem::path& path, OutputFile::Mode mode, const std::filesystem::path& shown) {
  // These are rondo's own names in rondo's own folders: a link, a pipe or a device there is somebody's trap
  // or mistake. Non-blocking, so that a named pipe is refused instead of waited for.
  int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  if (mode == OutputFile::Mode::create) flags |= O_EXCL;
  if (mode == OutputFile::Mode::append) flags |= O_APPEND;
  const int descriptor = ::open(path.c_str(), flags, 0644);
  if (descriptor < 0) {
    const int code = errno;
    throw Error(str("cannot create ", shown.string(), ": ",
                    code == ELOOP ? "it is a link, and rondo follows none among its own files; remove it"
                                  : errno_text(code),
                    space_hint(path, code)));
  }
  struct stat status {};
  std::string problem;
  const bool is_known = ::fstat(descriptor, &status) == 0;
  if (is_known && !S_ISREG(status.st_mode)) {
    problem = str("it is ", kind_of_file(status.st_mode), ", expected a regular file");
  } else if (!is_known || (mode == OutputFile::Mode::truncate && ::ftruncate(descriptor, 0) != 0)) {
    problem = errno_text(errno);
  }
  if (!problem.empty()) {
    ::close(descriptor);
    throw Error(str("cannot create ", shown.string(), ": ", problem));
  }
  return descriptor;
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path, Mode mode, std::filesystem::path shown)
    : path_(std::move(path)),
      shown_(shown.empty() ? path_ : std::move(shown)),
      descriptor_(open_for(path_, mode, shown_)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      shown_(std::move(other.shown_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      written_(other.written_),
      flushed_(other.flushed_) {}

void OutputFile::fail(int error_code) const {
  throw Error(str("cannot write ", shown_.string(), " at byte ", written_, ": ", errno_text(error_code),
                  space_hint(path_, error_code)));
}

void OutputFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    // Linux writes at most 2 GiB a call.
    const std::size_t most = flushed_ ? kFlush : std::size_t{1} << 30;
    const ssize_t count = ::write(descriptor_, data.data(), std::min(data.size(), most));
    if (count < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    data = data.subspan(static_cast<std::size_t>(count));
    written_ += static_cast<std::uint64_t>(count);
    if (!flushed_ || written_ - *flushed_ < kFlush) continue;
    // The disk works while the next bytes are made; sync() then has little left. File systems that cannot do
    // it do all in sync().
    ::sync_file_range(descriptor_, static_cast<off_t>(*flushed_), static_cast<off_t>(written_ - *flushed_),
                      SYNC_FILE_RANGE_WRITE);
    flushed_ = written_;
  }
}

void OutputFile::reserve(Bytes size) {
  if (size.count == 0) return;
  if (written_ == 0 && size.count >= kFlush) flushed_ = 0;
  const int error = take_file_space(descriptor_, 0, size.count);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) fail(error);
}

void OutputFile::sync() {
  if (::fsync(descriptor_) != 0) fail(errno);
}

void OutputFile::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail(errno);
}

MappedFile::MappedFile(std::filesystem::path path, ReadAhead ahead) : path_(std::move(path)) {
  const RegularFile file(path_);
  if (file.size() == 0) return;
  void* address = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (address == MAP_FAILED) throw DataError(str("cannot read ", path_.string(), ": ", errno_text(errno)));
  if (ahead == ReadAhead::all) ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_WILLNEED);
  data_ = static_cast<const std::byte*>(address);
  size_ = file.size();
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::read_ahead(std::size_t begin, std::size_t size) const {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (begin >= size_ || size == 0) return;
  begin -= begin % page;
  size = std::min(size, size_ - begin);
  auto* const first = const_cast<std::byte*>(data_) + begin;
  const auto is_here = [&](std::size_t offset) {
    unsigned char state = 0;
    return ::mincore(first + (offset - offset % page), 1, &state) == 0 && (state & 1) != 0;
  };
  // Looking at every page costs as much as asking for them: the ends stand for the rest.
  if (is_here(0) && is_here(size / 2) && is_here(size - 1)) return;
  ::madvise(first, size, MADV_WILLNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

std::string read_text_file(const std::filesystem::path& path, Bytes limit) {
  return read_regular_file(path, limit);
}

void replace_text_file(const std::filesystem::path& path, std::string_view text) {
  write_own_file(path, text);
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
