#include "rondo/base/appended_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_to_append(const fs::path& path, const std::string& why) {
  throw Error(str("cannot write ", path.string(), ": ", why));
}

bool is_stream_file(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode));
}

// Returns the target of the link `path`, or `path` itself if it is not a link. Throws Error for a dangling
// link.
fs::path end_of_links(const fs::path& path) {
  if (!fs::is_symlink(fs::symlink_status(path))) return path;
  std::error_code missing;
  fs::path real = fs::canonical(path, missing);
  if (missing)
    fail_to_append(path, str("it is a dangling symbolic link (", missing.message(), "); remove it"));
  return real;
}

}  // namespace

AppendedOutput::AppendedOutput(const fs::path& path) : named_(path), is_stream_(is_stream_file(path)) {
  target_ = is_stream_ ? path : end_of_links(path);
  open();
}

AppendedOutput::~AppendedOutput() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendedOutput::open() {
  // O_NONBLOCK: opening must not block if the file has become a named pipe in the meantime.
  const int flags = is_stream_ ? 0 : O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK;
  do {
    descriptor_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | flags, 0666);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) fail_to_append(named_, errno_text(errno));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_to_append(named_, errno_text(errno));
  if (!is_stream_ && !S_ISREG(status.st_mode))
    fail_to_append(named_, str("it is ", kind_of_file(status.st_mode), ", expected a regular file"));
}

void AppendedOutput::replace(std::string_view text) {
  write_own_file(target_, text);
  ::close(std::exchange(descriptor_, -1));
  open();
}

void AppendedOutput::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor_, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EPIPE && is_stream_) return;
    if (count < 0) fail_to_append(named_, errno_text(errno));
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace rondo
