#include "rondo/format/run_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/machine.h"
#include "rondo/base/text.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

// The whole file, for one writer.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// What the holder wrote: "process 12 on host h".
std::string holder_of(int descriptor) {
  std::array<char, 300> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size() - 1, 0);
  std::string holder;
  for (ssize_t i = 0; i < length && text[static_cast<std::size_t>(i)] >= ' '; ++i)
    holder += text[static_cast<std::size_t>(i)];
  return holder.empty() ? "another process" : holder;
}

// A holder that ends removes the file, after which its lock guards nothing any more.
bool is_still_named(int descriptor, const fs::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(descriptor, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace

RunLock::RunLock(fs::path run_directory) : directory_(std::move(run_directory)) {
  std::error_code code;
  made_directory_ = fs::create_directories(directory_, code);
  if (code) throw Error(str("cannot make the run directory ", directory_.string(), ": ", code.message()));
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (try_open()) return;
  }
  throw Error(str("cannot lock ", (directory_ / file_name).string(), ": something removes it at once"));
}

bool RunLock::try_open() {
  const fs::path path = directory_ / file_name;
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (descriptor_ < 0) throw Error(str("cannot make ", path.string(), ": ", errno_text(errno)));
  struct flock lock = whole_file();
  if (::fcntl(descriptor_, F_OFD_SETLK, &lock) != 0) {
    const int reason = errno;
    const std::string holder = holder_of(descriptor_);
    if (reason == EAGAIN || reason == EACCES) {
      ::close(std::exchange(descriptor_, -1));
      throw UsageError(
          str("run directory ", directory_.string(), " is in use: ", holder,
              " trains in it; wait for its end, stop it, or give another directory (--run-dir)"));
    }
    log::warning(path.string(), ": this file system has no locks (", errno_text(reason),
                 "); nothing keeps a second training out of the run directory");
    return true;
  }
  if (!is_still_named(descriptor_, path)) {
    ::close(std::exchange(descriptor_, -1));
    return false;
  }
  const std::string text = str("process ", ::getpid(), " on host ", host_name(), "\n");
  // Only for the message above; a full disk does no harm.
  ssize_t written = ::ftruncate(descriptor_, 0);
  if (written == 0) written = ::pwrite(descriptor_, text.data(), text.size(), 0);
  static_cast<void>(written);
  return true;
}

bool RunLock::is_held(const fs::path& run_directory) {
  const fs::path path = run_directory / file_name;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return false;
  struct flock lock = whole_file();
  const bool is_free = ::fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  ::close(descriptor);
  return !is_free;
}

RunLock::~RunLock() {
  if (descriptor_ < 0) return;
  const fs::path path = directory_ / file_name;
  if (is_still_named(descriptor_, path)) ::unlink(path.c_str());
  ::close(descriptor_);
  if (made_directory_) ::rmdir(directory_.c_str());
}

}  // namespace rondo
