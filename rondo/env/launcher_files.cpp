#include "rondo/env/launcher_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"

namespace rondo::env {

EndedWorkers::EndedWorkers(const std::string& path) {
  if (path.empty()) return;
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0)
    throw Error(str("cannot open ", path, ": ", errno_text(errno), " (", kEndedWorkersVariable, ")"));
}

EndedWorkers::~EndedWorkers() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string EndedWorkers::read(std::size_t first, std::size_t count) const {
  std::string bytes(count, '\0');
  const ssize_t got = pread(descriptor_, bytes.data(), count, static_cast<off_t>(first));
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  return bytes;
}

bool EndedWorkers::any_of(std::size_t first, std::size_t count) const {
  if (descriptor_ < 0) return false;
  const std::string bytes = read(first, count);
  return std::any_of(bytes.begin(), bytes.end(), [](char byte) { return byte != 0; });
}

bool EndedWorkers::all() const {
  struct stat status {};
  if (descriptor_ < 0 || fstat(descriptor_, &status) != 0 || status.st_size == 0) return false;
  const std::string bytes = read(0, static_cast<std::size_t>(status.st_size));
  return std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte != 0; });
}

void note_preemption() noexcept {
  const char* const path = std::getenv(kPreemptionFileVariable);
  if (path == nullptr || *path == '\0') return;
  try {
    write_output(path, "");
  } catch (const std::exception&) {
    // The launcher then treats the exit as a failure and reports it.
  }
}

}  // namespace rondo::env
