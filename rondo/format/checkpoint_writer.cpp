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

constexpr std::size_t kMostUnsynced = 64;

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

void CheckpointWriter::add_unsynced(OutputFile file) {
  // Open files are few.
  if (unsynced_.size() == kMostUnsynced) sync_files();
  unsynced_.push_back(std::move(file));
}

void CheckpointWriter::sync_files() {
  for (OutputFile& file : unsynced_) {
    file.sync();
    file.close();
  }
  unsynced_.clear();
}

void CheckpointWriter::finish(SafetensorsWriter& tensors) {
  SafetensorsWriter::Unsynced finished = tensors.finish_unsynced();
  add_unsynced(std::move(finished.file));
  add(std::move(finished.record));
}

bool CheckpointWriter::link(const fs::path& file, FileRecord record) {
  const fs::path name = temporary_ / record.name;
  if (::link(file.c_str(), name.c_str()) != 0) return false;
  // What is compared is what was linked; a link of somebody else's making is not followed.
  bool is_equal = false;
  try {
    is_equal = fs::is_regular_file(fs::symlink_status(name)) &&
               checksum_hex(MappedFile(name).bytes()) == record.checksum;
  } catch (const DataError&) {
    // It is as good as another one.
  }
  if (is_equal) {
    add(std::move(record));
  } else {
    fs::remove(name);
  }
  return is_equal;
}

void CheckpointWriter::write_text(const std::string& file_name, std::string_view text) {
  OutputFile file(temporary_ / file_name, OutputFile::Mode::create);
  file.write(text);
  add_unsynced(std::move(file));
  add({file_name, text.size(), checksum_hex(as_bytes(text)), {}});
}

fs::path CheckpointWriter::commit(int keep) {
  if (keep < 1) throw UsageError(str("the number of checkpoints to keep is ", keep, ", expected at least 1"));
  {
    OutputFile file(temporary_ / Manifest::file_name, OutputFile::Mode::create);
    file.write(to_text(manifest_));
    // It may reach the disk before the others: nobody takes the directory for a checkpoint before it has its
    // last name.
    add_unsynced(std::move(file));
  }
  sync_files();
  sync_directory(temporary_);
  fs::path final_path = root_ / checkpoint_name(manifest_.step);
  publish(final_path);
  prune_checkpoints(root_, keep, manifest_.step);
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

void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path hidden = make_hidden_directory(parent_of_checkpoint(checkpoint), "deleted");
  fs::rename(checkpoint, hidden);
  fs::remove_all(hidden);
}

void prune_checkpoints(const fs::path& root, int keep, std::int64_t written) {
  std::vector<CheckpointEntry> complete = list_checkpoints(root);
  std::erase_if(complete, [&](const CheckpointEntry& entry) { return entry.step > written; });
  if (complete.size() <= static_cast<std::size_t>(keep)) return;
  const std::int64_t oldest_kept = complete[complete.size() - static_cast<std::size_t>(keep)].step;
  for (const CheckpointEntry& entry : step_directories(root)) {
    if (entry.step < oldest_kept) remove_checkpoint(entry.path);
  }
}

}  // namespace rondo
