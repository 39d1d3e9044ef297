#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/format/file_record.h"

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

}  // namespace rondo
