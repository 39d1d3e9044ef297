#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/format/checkpoint_directory.h"

namespace rondo {

// The files of a checkpoint, each mapped once: whoever compares them with the manifest has brought them into
// memory for whoever reads them next. Not thread-safe.
class CheckpointFiles {
 public:
  // Reads the manifest, and maps the files that are there. Throws DataError for a damaged manifest.
  explicit CheckpointFiles(std::filesystem::path checkpoint);

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  bool has(const std::string& name) const { return mapped_.contains(name); }
  // A tensor file of the manifest. Throws DataError when it is missing or none.
  std::shared_ptr<SafetensorsFile> tensors(const std::string& name) const;

  // Compares every byte with the manifest, in several threads, while the disk reads ahead of them; a thread
  // takes a tensor at a time where the manifest knows the header's checksum, else a file. Empty when intact.
  std::vector<Damage> compare() const;

 private:
  std::filesystem::path path_;
  Manifest manifest_;
  std::map<std::string, std::shared_ptr<const MappedFile>> mapped_;
  std::map<std::string, std::string> unreadable_;  // why a file could not be mapped
};

// Which checkpoint a path stands for, and whether it may be read. One rule for all readers: the newest one is
// meant whatever its state, and a damaged one is never passed over in silence.

// "model.safetensors, tensor 'head.weight': its elements have ... (and 2 more)".
std::string describe(const std::vector<Damage>& damage);

// The newest checkpoint of `root` of which every byte is as its manifest says, and what is damaged of those
// that are newer. Reads the files of all of them.
struct IntactCheckpoint {
  std::optional<CheckpointEntry> newest;
  struct Damaged {
    CheckpointEntry entry;
    std::vector<Damage> damage;
  };
  std::vector<Damaged> passed_over;  // newest first
};
IntactCheckpoint newest_intact_checkpoint(const std::filesystem::path& root);

// Compares every byte of a checkpoint with its manifest. Throws DataError that says what is damaged, which
// other checkpoint of the same directory is the newest intact one, and how to take it.
void require_intact(const std::filesystem::path& checkpoint);

// The same of files that stay mapped for the reader, with find_checkpoint() for the path. Throws DataError.
CheckpointFiles open_checkpoint_files(const std::filesystem::path& path);

// find_checkpoint() for a reader: require_intact() holds for the result. Throws DataError.
std::filesystem::path open_checkpoint(const std::filesystem::path& path);

// For a single file: where it belongs to a checkpoint (a manifest beside it names it), require_intact() of
// that. Files of their own have no manifest, and nothing is checked.
void require_intact_if_of_checkpoint(const std::filesystem::path& file);

// How to take an intact checkpoint in place of a damaged one, as the end of a message.
std::string advice_for_damaged(const IntactCheckpoint& others);

}  // namespace rondo
