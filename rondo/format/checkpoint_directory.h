#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/format/checksum.h"
#include "rondo/format/safetensors.h"

namespace rondo {

// manifest.json: the list of a checkpoint's files with sizes and checksums. It is written last, so a
// directory with an intact manifest is a complete checkpoint.
struct Manifest {
  std::int64_t step = 0;
  std::vector<FileRecord> files;

  static constexpr std::string_view file_name = "manifest.json";
};

// The text of manifest.json. It carries a checksum of itself: XXH3-128 of the text with the 32 digits of that
// checksum replaced by zeros, so that a flipped bit in the manifest is found as well.
std::string to_text(const Manifest& manifest);

// Throws DataError naming `file` when the text is damaged or of another format version.
Manifest parse_manifest(std::string_view text, const std::string& file);

// Reads CHECKPOINT/manifest.json. Throws DataError.
Manifest read_manifest(const std::filesystem::path& checkpoint);

// A directory of checkpoints, ROOT/step-00000100/{manifest.json, *.safetensors, *.json}.
//
// Commit: all files are written and synced in ROOT/.tmp-*, then the manifest, then the directory; one
// rename(2) makes the checkpoint appear under its final name, ROOT is synced, and only then are older
// checkpoints deleted. A process or machine that dies at any moment leaves the newest or the previous
// checkpoint complete.

// Writes one checkpoint. Destroyed before commit() (an error, a full disk) it removes what it wrote. One
// process writes a root at a time; not thread-safe.
class CheckpointWriter {
 public:
  // Makes `root` when it is missing, and the temporary directory inside it.
  CheckpointWriter(std::filesystem::path root, std::int64_t step);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // A tensor file of this checkpoint; hand it to finish() when it is written, or the result of its own
  // finish() to add().
  SafetensorsWriter open_tensors(const std::string& file_name, const std::vector<TensorSpec>& tensors,
                                 const std::map<std::string, std::string>& metadata = {});
  // commit() syncs it.
  void finish(SafetensorsWriter& tensors);
  // Takes a file of an older checkpoint in the same file system as one of this checkpoint: a second name of
  // the same bytes. Every byte is compared with `record` first. False where that is not possible.
  bool link(const std::filesystem::path& file, FileRecord record);
  void add(FileRecord record) { manifest_.files.push_back(std::move(record)); }
  // Where the files are until commit(): other processes may write some of them there, whose records go to
  // add().
  const std::filesystem::path& directory() const { return temporary_; }
  // A text file of this checkpoint.
  void write_text(const std::string& file_name, std::string_view text);

  // Makes the checkpoint visible and durable, replacing one of the same step, then deletes all but the newest
  // `keep` (at least 1). Returns its directory.
  std::filesystem::path commit(int keep);

 private:
  void make_temporary_directory();
  void add_unsynced(OutputFile file);
  void sync_files();
  void publish(const std::filesystem::path& final_path);

  std::filesystem::path root_;
  Manifest manifest_;
  std::filesystem::path temporary_;
  int lock_ =
      -1;  // flock on the temporary directory: held by a live writer, released by the kernel with its death
  bool committed_ = false;
  std::vector<OutputFile> unsynced_;
};

struct CheckpointEntry {
  std::int64_t step = 0;
  std::filesystem::path path;
};

// "step-00000100"
std::string checkpoint_name(std::int64_t step);

// The complete checkpoints of `root`, oldest first: those whose manifest is intact and whose files are there
// with the right sizes. Reads no tensor. Empty when `root` does not exist.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& root);

// All step-* directories of `root` in the order of their steps, complete or not. A checkpoint gets this name
// when it is complete, so one that is not has been damaged since.
std::vector<CheckpointEntry> step_directories(const std::filesystem::path& root);

// Whether the name is one of a checkpoint, "step-00000100".
bool is_step_directory(const std::filesystem::path& path);

// The directory in which a checkpoint, or a file of one, lies; "." for a bare name.
std::filesystem::path parent_of_checkpoint(const std::filesystem::path& path);

// The step-* directory with the highest step, complete or not.
std::optional<CheckpointEntry> newest_checkpoint(const std::filesystem::path& root);

// `path` itself when it is a checkpoint, the newest one inside when it is a directory of checkpoints or a run
// directory (which holds checkpoints/). Whether it is intact is not looked at; see checkpoint_files.h for
// readers. Throws DataError saying what was found when there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

// Something that differs from the manifest.
struct Damage {
  std::string file;
  std::string tensor;  // empty when it is not one tensor
  std::string what;
};

class CheckpointFiles;
// Compares every byte of a checkpoint's files with the manifest, and its step with the directory's name.
// Empty when intact.
std::vector<Damage> damage_of(const CheckpointFiles& files);
// The same for a checkpoint whose manifest may be damaged too.
std::vector<Damage> verify_checkpoint(const std::filesystem::path& checkpoint);

// Removes temporary directories whose writer is dead. Returns how many. Those of live writers are left alone.
int remove_abandoned_checkpoints(const std::filesystem::path& root);

// Deletes a checkpoint: first out of sight in one step, so that a half-deleted one is never taken for one.
void remove_checkpoint(const std::filesystem::path& checkpoint);

// Of the checkpoints up to step `written` deletes all but the newest `keep` complete ones. Later ones, of a
// run that went on from an earlier step, stay.
void prune_checkpoints(const std::filesystem::path& root, int keep, std::int64_t written);

}  // namespace rondo
