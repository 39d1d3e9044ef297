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

// Content of manifest.json: the files of a checkpoint with sizes and checksums. It is written last, so a
// directory with an intact manifest is a complete checkpoint.
struct Manifest {
  std::int64_t step = 0;
  std::vector<FileRecord> files;

  static constexpr std::string_view file_name = "manifest.json";
};

// Returns the text of manifest.json. It contains a checksum of itself, to detect damage of the manifest:
// XXH3-128 of the text with the checksum's 32 digits replaced by zeros.
std::string to_text(const Manifest& manifest);

// Throws DataError naming `file` if the text is damaged or has another format version.
Manifest parse_manifest(std::string_view text, const std::string& file);

// Reads CHECKPOINT/manifest.json. Throws DataError.
Manifest read_manifest(const std::filesystem::path& checkpoint);

// A directory of checkpoints, ROOT/step-00000100/{manifest.json, *.safetensors, *.json}.
//
// Commit: all files are written in ROOT/.tmp-* and synced together with the manifest, then the directory is
// synced. One rename(2) gives the checkpoint its final name, ROOT is synced, and only then are older
// checkpoints deleted. If the process or machine dies at any moment, the newest or the previous checkpoint is
// complete.

// A writer of one checkpoint. If it is destroyed before commit() (an error, a full disk), removes everything
// it wrote. One process writes to a root at a time. Not thread-safe.
class CheckpointWriter {
 public:
  // Creates `root` if it is missing, and the temporary directory in it.
  CheckpointWriter(std::filesystem::path root, std::int64_t step);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Opens a tensor file of this checkpoint. Pass the writer to finish(), or the result of the writer's own
  // finish() to add().
  SafetensorsWriter open_tensors(const std::string& file_name, const std::vector<TensorSpec>& tensors,
                                 const std::map<std::string, std::string>& metadata = {});
  // Completes a tensor file; commit() syncs it.
  void finish(SafetensorsWriter& tensors);
  // Hard-links a file of an older checkpoint in the same file system into this checkpoint. First compares
  // every byte with `record`. Returns false if that is not possible.
  bool link(const std::filesystem::path& file, FileRecord record);
  void add(FileRecord record) { manifest_.files.push_back(std::move(record)); }
  // Returns the directory of the files until commit(). Other processes may write files there and pass their
  // records to add().
  const std::filesystem::path& directory() const { return temporary_; }
  // Writes a text file of this checkpoint.
  void write_text(const std::string& file_name, std::string_view text);

  // Makes the checkpoint visible and durable, replacing one of the same step. Then deletes all but the newest
  // `keep` checkpoints (at least 1). Returns the checkpoint's directory.
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
      // flock on the temporary directory: held while the writer lives, released by the kernel when it dies
      -1;
  bool committed_ = false;
  std::vector<OutputFile> unsynced_;
};

struct CheckpointEntry {
  std::int64_t step = 0;
  std::filesystem::path path;
};

// Returns the directory name of a step: "step-00000100".
std::string checkpoint_name(std::int64_t step);

// Returns the complete checkpoints of `root`, oldest first: those with an intact manifest and all files in
// the right sizes. Reads no tensors. Empty if `root` does not exist.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& root);

// Returns all step-* directories of `root` in step order. A checkpoint gets this name when it is complete, so
// an incomplete one has been damaged later.
std::vector<CheckpointEntry> step_directories(const std::filesystem::path& root);

// Returns whether the name is that of a checkpoint, "step-00000100".
bool is_step_directory(const std::filesystem::path& path);

// Returns the directory that contains a checkpoint, or a file of one; "." for a bare name.
std::filesystem::path parent_of_checkpoint(const std::filesystem::path& path);

// Returns the step-* directory with the highest step, complete or not.
std::optional<CheckpointEntry> newest_checkpoint(const std::filesystem::path& root);

// Returns `path` if it is a checkpoint, or the newest checkpoint in a directory of checkpoints or a run
// directory (which contains checkpoints/). Does not check whether it is intact; readers use
// checkpoint_files.h. Throws DataError describing the content if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

// A difference from the manifest.
struct Damage {
  std::string file;
  std::string tensor;  // empty if it does not concern a single tensor
  std::string what;
};

class CheckpointFiles;
// Compares every byte of a checkpoint's files with the manifest, and its step with the directory's name.
// Empty if intact.
std::vector<Damage> damage_of(const CheckpointFiles& files);
// Same for a checkpoint whose manifest may be damaged too.
std::vector<Damage> verify_checkpoint(const std::filesystem::path& checkpoint);

// Removes temporary directories of dead writers and leaves those of live ones. Returns the number removed.
int remove_abandoned_checkpoints(const std::filesystem::path& root);

// Deletes a checkpoint. First renames it atomically, so that a half-deleted one is never taken for a
// checkpoint.
void remove_checkpoint(const std::filesystem::path& checkpoint);

// Deletes all but the newest `keep` complete checkpoints among those up to step `written`. Keeps later ones,
// from a run that has continued from an earlier step.
void prune_checkpoints(const std::filesystem::path& root, int keep, std::int64_t written);

}  // namespace rondo
