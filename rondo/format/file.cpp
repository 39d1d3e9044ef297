#include "rondo/format/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Number of bytes of a large file after which write-back starts.
constexpr std::size_t kFlush = std::size_t{8} << 20;

// Size of reads for read-ahead: the kernel itself reads ahead of small sequential reads, in large pages. From
// a cold cache this took a third of the time of madvise(MADV_WILLNEED) on pieces of 8 MiB, and of direct
// reads of 4 MiB.
constexpr std::size_t kReadPiece = std::size_t{256} << 10;
// Number of pages that are sampled: checking every page of a file costs as much as reading the file from
// memory.
constexpr std::size_t kLooks = 64;

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
  // These are rondo's own files in rondo's own folders: a link, pipe or device there is an attack or a
  // mistake. Non-blocking, so that a named pipe is refused instead of waited for.
  int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  if (mode == OutputFile::Mode::create) flags |= O_EXCL;
  if (mode == OutputFile::Mode::append) flags |= O_APPEND;
  const int descriptor = ::open(path.c_str(), flags, 0644);
  if (descriptor < 0) {
    const int code = errno;
    throw Error(str("cannot create ", shown.string(), ": ",
                    code == ELOOP
                        ? "it is a symbolic link, which rondo does not follow among its own files; remove it"
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
    // Linux writes at most 2 GiB per call.
    const std::size_t most = flushed_ ? kFlush : std::size_t{1} << 30;
    const ssize_t count = ::write(descriptor_, data.data(), std::min(data.size(), most));
    if (count < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    data = data.subspan(static_cast<std::size_t>(count));
    written_ += static_cast<std::uint64_t>(count);
    if (!flushed_ || written_ - *flushed_ < kFlush) continue;
    // Starts write-back while the next bytes are computed, which leaves little work for sync(). File systems
    // without support do all work in sync().
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

void MappedFile::read_ahead(const std::atomic<bool>& stops) const {
  if (is_in_memory()) return;
  try {
    const RegularFile file(path_);
    std::vector<std::byte> piece(std::min(size_, kReadPiece));
    for (std::size_t begin = 0; begin < size_ && !stops; begin += piece.size()) {
      if (::pread(file.descriptor(), piece.data(), piece.size(), static_cast<off_t>(begin)) <= 0) return;
    }
  } catch (const DataError&) {
    // The mapping remains valid even if the name is gone.
  }
}

bool MappedFile::is_in_memory() const {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t i = 0; i < kLooks && size_ > 0; ++i) {
    const std::size_t offset = (size_ - 1) / (kLooks - 1) * i;
    unsigned char state = 0;
    auto* const address = const_cast<std::byte*>(data_) + (offset - offset % page);
    if (::mincore(address, 1, &state) != 0 || (state & 1) == 0) return false;
  }
  return true;
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
  // Some network file systems cannot sync a directory; they keep the order of renames themselves.
  if (result != 0 && code != EINVAL) {
    throw Error(str("cannot write directory ", path.string(), " to disk: ", errno_text(code)));
  }
}

}  // namespace rondo
