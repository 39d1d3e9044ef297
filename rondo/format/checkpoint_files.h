#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/format/checkpoint_directory.h"

namespace rondo {

// The files of a checkpoint, each mapped once: comparing them with the manifest also brings them into memory
// for the reader. Not thread-safe.
class CheckpointFiles {
 public:
  // Reads the manifest and maps the existing files. Throws DataError for a damaged manifest.
  explicit CheckpointFiles(std::filesystem::path checkpoint);

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  bool has(const std::string& name) const { return mapped_.contains(name); }
  // Returns a tensor file of the manifest. Throws DataError if it is missing or not a tensor file.
  std::shared_ptr<SafetensorsFile> tensors(const std::string& name) const;

  // Compares every byte with the manifest, in several threads and with read-ahead. A thread processes a
  // tensor at a time if the manifest has the header's checksum, else a file. Empty if intact.
  std::vector<Damage> compare() const;

 private:
  std::filesystem::path path_;
  Manifest manifest_;
  std::map<std::string, std::shared_ptr<const MappedFile>> mapped_;
  std::map<std::string, std::string> unreadable_;  // reasons why files could not be mapped
};

// Selection and validation of the checkpoint for a path. One rule for all readers: the newest checkpoint is
// used even if it is damaged, which is an error; it is never skipped silently.

// Formats damage: "model.safetensors, tensor 'head.weight': its elements have ... (and 2 more)".
std::string describe(const std::vector<Damage>& damage);

// The newest checkpoint of a root that matches its manifest in every byte, and the damaged newer ones.
struct IntactCheckpoint {
  std::optional<CheckpointEntry> newest;
  struct Damaged {
    CheckpointEntry entry;
    std::vector<Damage> damage;
  };
  std::vector<Damaged> skipped_checkpoints;  // newest first
};
IntactCheckpoint newest_intact_checkpoint(const std::filesystem::path& root);

// Compares every byte of a checkpoint with its manifest. Throws DataError naming the damage, the newest
// intact checkpoint in the same directory and how to use it.
void require_intact(const std::filesystem::path& checkpoint);

// Applies find_checkpoint() and require_intact(), and returns the files, still mapped, for the reader. Throws
// DataError.
CheckpointFiles open_checkpoint_files(const std::filesystem::path& path);

// Returns the path of open_checkpoint_files(). Throws DataError.
std::filesystem::path open_checkpoint(const std::filesystem::path& path);

// For a single file: if it belongs to a checkpoint (a manifest in its folder names it), calls
// require_intact() for that checkpoint. Checks nothing for other files.
void require_intact_if_of_checkpoint(const std::filesystem::path& file);

// Returns advice for using an intact checkpoint instead of a damaged one, as the end of a message.
std::string advice_for_damaged(const IntactCheckpoint& others);

}  // namespace rondo
