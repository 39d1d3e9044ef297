#include "rondo/launch/scratch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"

namespace rondo::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "rondo-run-";
constexpr std::string_view kEnd = "XXXXXX";

// Returns whether the name is "rondo-run-" and six letters or digits, as mkdtemp creates them.
bool is_a_scratch_name(std::string_view name) {
  if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + kEnd.size()) return false;
  name.remove_prefix(kPrefix.size());
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
}

// Opens and locks the directory itself, never the target of a link. Returns an invalid descriptor if another
// process holds the lock or it is not a directory of this user.
Descriptor locked(const std::string& path) {
  Descriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!directory.valid() || fstat(directory.number(), &status) != 0 || status.st_uid != geteuid() ||
      flock(directory.number(), LOCK_EX | LOCK_NB) != 0) {
    directory.reset();
  }
  return directory;
}

// Removes the scratch directories in `parent` that exited processes of this user left behind.
void sweep(const std::string& parent) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const fs::path& path = entry.path();
    if (!is_a_scratch_name(path.filename().native())) continue;
    const Descriptor lock = locked(path);
    if (lock.valid() && is_still_at(lock.number(), path)) fs::remove_all(path, ignored);
  }
}

}  // namespace

ScratchDirectory::ScratchDirectory(std::string path, Descriptor lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}

ScratchDirectory ScratchDirectory::create() {
  const char* variable = std::getenv("TMPDIR");
  return create_in(variable != nullptr && *variable != '\0' ? variable : "/tmp");
}

ScratchDirectory ScratchDirectory::create_in_memory() { return create_in("/dev/shm"); }

ScratchDirectory ScratchDirectory::create_in(const std::string& parent) {
  sweep(parent);
  // Retries if another process's sweep removes the directory before it is locked.
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string path = str(parent, '/', kPrefix, kEnd);
    if (mkdtemp(path.data()) == nullptr) return {};
    Descriptor lock = locked(path);
    // Without locks (some network file systems) no process sweeps either.
    const bool has_no_locks = !lock.valid() && errno != EWOULDBLOCK && errno != ENOENT;
    if (has_no_locks || (lock.valid() && is_still_at(lock.number(), path))) return {path, std::move(lock)};
  }
  return {};
}

ScratchDirectory::ScratchDirectory(ScratchDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}

ScratchDirectory& ScratchDirectory::operator=(ScratchDirectory&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
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
