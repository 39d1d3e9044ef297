#pragma once

#include <filesystem>
#include <map>
#include <memory>
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

}  // namespace rondo
