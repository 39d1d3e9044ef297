#include "rondo/base/file_access.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <string>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

namespace {

bool is_same_file(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

bool is_same_file(int one, int other) {
  struct stat first {};
  struct stat second {};
  return fstat(one, &first) == 0 && fstat(other, &second) == 0 && is_same_file(first, second);
}

bool is_still_at(int descriptor, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(descriptor, &opened) == 0 && lstat(path.c_str(), &named) == 0 && is_same_file(opened, named);
}

std::string kind_of_file(unsigned mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISLNK(mode)) return "a link";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

RegularFile::RegularFile(std::filesystem::path path) : path_(std::move(path)) {
  // Non-blocking, so that a named pipe is refused below and open() does not wait for a writer.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ < 0) throw DataError(str("cannot open ", path_.string(), ": ", errno_text(errno)));
  struct stat status {};
  std::string problem;
  if (::fstat(descriptor_, &status) != 0) {
    problem = errno_text(errno);
  } else if (!S_ISREG(status.st_mode)) {
    problem = str("it is ", kind_of_file(status.st_mode), ", expected a regular file");
  }
  if (!problem.empty()) {
    ::close(descriptor_);
    throw DataError(str("cannot read ", path_.string(), ": ", problem));
  }
  size_ = static_cast<std::size_t>(status.st_size);
}

RegularFile::~RegularFile() { ::close(descriptor_); }

std::string read_regular_file(const std::filesystem::path& path, Bytes limit) {
  const RegularFile file(path);
  const auto refuse = [&](std::size_t size) {
    throw DataError(
        str(path.string(), " has ", to_string(Bytes{size}), ", expected at most ", to_string(limit)));
  };
  if (file.size() > limit.count) refuse(file.size());
  // Files in /proc report size 0, and other files may grow while they are read.
  std::string text(file.size() + 1, '\0');
  std::size_t used = 0;
  for (;;) {
    const ssize_t count = ::read(file.descriptor(), text.data() + used, text.size() - used);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw DataError(str("cannot read ", path.string(), ": ", errno_text(errno)));
    if (count == 0) break;
    used += static_cast<std::size_t>(count);
    if (used > limit.count) refuse(used);
    if (used == text.size()) text.resize(text.size() * 2 + 4096);
  }
  text.resize(used);
  return text;
}

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_to_write(const fs::path& path, const std::string& why) {
  throw Error(str("cannot write ", path.string(), ": ", why));
}

class OpenFile {
 public:
  // Opens `path`; `shown` replaces it in errors, because a temporary name means nothing to the user.
  OpenFile(const fs::path& path, int flags, const fs::path& shown) : path_(shown) {
    do {
      descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | flags, 0666);
    } while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0) fail_to_write(shown, errno_text(errno));
  }
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::write(descriptor_, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail_to_write(path_, errno_text(errno));
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  void sync() {
    if (::fsync(descriptor_) != 0) fail_to_write(path_, errno_text(errno));
  }
  void close() {
    if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR)
      fail_to_write(path_, errno_text(errno));
  }

 private:
  const fs::path& path_;
  int descriptor_ = -1;
};

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Returns an unpredictable name, so that nobody can place a link there in advance.
fs::path random_name(const fs::path& folder) {
  std::random_device source;
  std::array<char, 40> name{};
  std::snprintf(name.data(), name.size(), ".rondo-%08x%08x%08x.tmp", source(), source(), source());
  return folder / name.data();
}

// Makes the rename durable across a power failure. Errors are ignored: some file systems cannot sync a
// directory and need no sync.
void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

void replace_with(ReplacedFile& file, std::string_view text) {
  OpenFile fresh(file.temporary(), O_CREAT | O_EXCL | O_NOFOLLOW, file.target());
  fresh.write(text);
  fresh.sync();
  fresh.close();
  file.commit();
}

}  // namespace

ReplacedFile::ReplacedFile(fs::path target, Links links) : target_(std::move(target)) {
  if (target_.filename().empty()) fail_to_write(target_, "it names a directory, expected a file");
  struct stat named {};
  if (::lstat(target_.c_str(), &named) == 0 && S_ISLNK(named.st_mode)) {
    if (links == Links::refuse)
      fail_to_write(target_,
                    "it is a symbolic link, which rondo does not follow among its own files; remove it");
    std::error_code missing;
    const fs::path real = fs::canonical(target_, missing);
    if (missing)
      fail_to_write(target_, str("it is a dangling symbolic link (", missing.message(), "); remove it"));
    target_ = real;
  }
  struct stat status {};
  exists_ = ::lstat(target_.c_str(), &status) == 0;
  if (!exists_ && errno != ENOENT) fail_to_write(target_, errno_text(errno));
  if (exists_ && !S_ISREG(status.st_mode))
    fail_to_write(target_, str("it is ", kind_of_file(status.st_mode), ", expected a regular file"));
  if (exists_ && ::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0)
    fail_to_write(target_, errno_text(errno));
  temporary_ = random_name(folder_of(target_));
}

ReplacedFile::~ReplacedFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void ReplacedFile::commit() {
  struct stat old {};
  if (exists_ && ::lstat(target_.c_str(), &old) == 0 && S_ISREG(old.st_mode)) {
    // When root overwrites another user's file, keeps that user as the owner. Other users cannot change
    // owners and do not need to.
    if (old.st_uid != ::geteuid() || old.st_gid != ::getegid()) {
      if (::lchown(temporary_.c_str(), old.st_uid, old.st_gid) != 0) errno = 0;
    }
    ::chmod(temporary_.c_str(), old.st_mode & 0777);
  }
  // Does not overwrite a file that was created after the constructor checked the target.
  const unsigned flags = exists_ ? 0 : RENAME_NOREPLACE;
  int result = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), flags);
  // Some network file systems do not support flags.
  if (result != 0 && errno == EINVAL && flags != 0) result = ::rename(temporary_.c_str(), target_.c_str());
  if (result != 0) fail_to_write(target_, errno_text(errno));
  committed_ = true;
  sync_folder(folder_of(target_));
}

void write_output(const fs::path& target, std::string_view text) {
  struct stat status {};
  const bool is_stream =
      ::stat(target.c_str(), &status) == 0 && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode));
  if (is_stream) {
    OpenFile stream(target, 0, target);
    stream.write(text);
    stream.close();
    return;
  }
  ReplacedFile file(target, ReplacedFile::Links::follow);
  replace_with(file, text);
}

void write_own_file(const fs::path& path, std::string_view text) {
  ReplacedFile file(path, ReplacedFile::Links::refuse);
  replace_with(file, text);
}

namespace {

constexpr std::size_t kSmallestPiece = 4096;

}  // namespace

int take_file_space(int descriptor, std::size_t offset, std::size_t length) {
  // Before Linux 6.10, a signal during fallocate() in shared memory undoes the whole call. With a periodic
  // signal, for example from a profiler, only pieces that finish between two signals make progress.
  std::size_t piece = length;
  while (length > 0) {
    piece = std::min(piece, length);
    if (fallocate(descriptor, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(piece)) ==
        0) {
      offset += piece;
      length -= piece;
    } else if (errno == EINTR) {
      piece = std::max(piece / 2, kSmallestPiece);
    } else {
      return errno;
    }
  }
  return 0;
}

}  // namespace rondo
