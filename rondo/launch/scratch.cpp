#include "rondo/launch/scratch.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::launch {

namespace fs = std::filesystem;

ScratchDirectory ScratchDirectory::create() {
  const char* parent = std::getenv("TMPDIR");
  std::string path = str(parent != nullptr && *parent != '\0' ? parent : "/tmp", "/rondo-run-XXXXXX");
  return mkdtemp(path.data()) == nullptr ? ScratchDirectory() : ScratchDirectory(path);
}

ScratchDirectory::ScratchDirectory(ScratchDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

ScratchDirectory& ScratchDirectory::operator=(ScratchDirectory&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

std::string make_unique_directory(const std::string& parent, const std::string& prefix,
                                  const std::string& flag) {
  std::error_code error;
  fs::create_directories(parent, error);
  std::string path = parent + "/" + prefix + "XXXXXX";
  if (error || mkdtemp(path.data()) == nullptr) {
    throw UsageError(str(flag, " ", parent, ": ", error ? error.message() : errno_text(errno)));
  }
  return path;
}

}  // namespace rondo::launch
