#include "rondo/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

std::string kind_of_file(unsigned mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISLNK(mode)) return "a link";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

RegularFile::RegularFile(std::filesystem::path path) : path_(std::move(path)) {
  // Non-blocking, so that a named pipe is refused below instead of waited for.
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
  // Files of /proc say that they are empty, others grow while they are read.
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

}  // namespace rondo
