#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/format/file.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

// Locks a directory for as long as the descriptor is open. -1 when somebody else holds it or it is gone.
int lock_directory(const fs::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return -1;
  struct stat opened {};
  struct stat named {};
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 || ::fstat(descriptor, &opened) != 0 ||
      ::stat(directory.c_str(), &named) != 0 || opened.st_ino != named.st_ino) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

// A name that no other writer uses, exclusively created.
fs::path make_hidden_directory(const fs::path& root, const std::string& suffix) {
  std::string name = (root / (".tmp-" + suffix + "-XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(str("cannot create a directory in ", root.string(), ": ", errno_text(errno)));
  }
  ::chmod(name.c_str(), 0755);
  return name;
}

// Out of sight in one step, so that a half-deleted checkpoint is never taken for one.
void delete_checkpoint(const fs::path& root, const fs::path& checkpoint) {
  const fs::path hidden = make_hidden_directory(root, "deleted");
  fs::rename(checkpoint, hidden);
  fs::remove_all(hidden);
}

}  // namespace

CheckpointWriter::CheckpointWriter(fs::path root, std::int64_t step)
    : root_(std::move(root)), manifest_{step, {}} {
  if (step < 0) throw UsageError(str("checkpoint step ", step, " is negative"));
  make_temporary_directory();
}

CheckpointWriter::~CheckpointWriter() {
  if (!committed_) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
  if (lock_ >= 0) ::close(lock_);
}

void CheckpointWriter::make_temporary_directory() {
  std::error_code code;
  fs::create_directories(root_, code);
  if (code) throw Error(str("cannot create ", root_.string(), ": ", code.message()));
  // A cleaner may take a fresh directory for an abandoned one before it is locked; then the next one is
  // tried.
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = make_hidden_directory(root_, checkpoint_name(manifest_.step));
    lock_ = lock_directory(temporary_);
    if (lock_ >= 0 || fs::exists(temporary_)) return;  // without flock (some network file systems): unlocked
  }
  throw Error(str("cannot create a directory in ", root_.string(), ": something removes it at once"));
}

SafetensorsWriter CheckpointWriter::open_tensors(const std::string& file_name,
                                                 const std::vector<TensorSpec>& tensors,
                                                 const std::map<std::string, std::string>& metadata) {
  return {temporary_ / file_name, tensors, metadata};
}

void CheckpointWriter::write_text(const std::string& file_name, std::string_view text) {
  OutputFile file(temporary_ / file_name, OutputFile::Mode::create);
  file.write(text);
  file.sync();
  file.close();
  add({file_name, text.size(), checksum_hex(as_bytes(text)), {}});
}

fs::path CheckpointWriter::commit(int keep) {
  if (keep < 1) throw UsageError(str("the number of checkpoints to keep is ", keep, ", expected at least 1"));
  {
    OutputFile file(temporary_ / Manifest::file_name, OutputFile::Mode::create);
    file.write(to_text(manifest_));
    file.sync();
    file.close();
  }
  sync_directory(temporary_);
  const fs::path final_path = root_ / checkpoint_name(manifest_.step);
  publish(final_path);
  prune_checkpoints(root_, keep);
  return final_path;
}

void CheckpointWriter::publish(const fs::path& final_path) {
  if (::rename(temporary_.c_str(), final_path.c_str()) == 0) {
    committed_ = true;
    sync_directory(root_);
    return;
  }
  if (errno != ENOTEMPTY && errno != EEXIST) {
    throw Error(
        str("cannot rename ", temporary_.string(), " to ", final_path.string(), ": ", errno_text(errno)));
  }
  // The same step again, after a resume from an earlier one: both names change in one step.
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) != 0) {
    throw Error(str("cannot replace ", final_path.string(), ": ", errno_text(errno),
                    "; this file system cannot exchange directories, so delete or move the old one"));
  }
  sync_directory(root_);
  fs::remove_all(temporary_);  // now holds the old checkpoint
  committed_ = true;
}

int remove_abandoned_checkpoints(const fs::path& root) {
  int removed = 0;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, code)) {
    if (!entry.path().filename().string().starts_with(".tmp-") || !entry.is_directory()) continue;
    const int lock = lock_directory(entry.path());
    if (lock < 0) continue;
    fs::remove_all(entry.path());
    ::close(lock);
    ++removed;
  }
  return removed;
}

void prune_checkpoints(const fs::path& root, int keep) {
  const std::vector<CheckpointEntry> entries = list_checkpoints(root);
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < entries.size(); ++i) {
    delete_checkpoint(root, entries[i].path);
  }
}

}  // namespace rondo
