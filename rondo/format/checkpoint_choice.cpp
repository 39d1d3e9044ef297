#include "rondo/format/checkpoint_choice.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace fs = std::filesystem;

std::string describe(const std::vector<Damage>& damage) {
  if (damage.empty()) return "nothing";
  const Damage& first = damage.front();
  return str(first.file, first.tensor.empty() ? "" : str(", tensor '", first.tensor, "'"), ": ", first.what,
             damage.size() > 1 ? str(" (and ", damage.size() - 1, " more)") : "");
}

IntactCheckpoint newest_intact_checkpoint(const fs::path& root) {
  IntactCheckpoint result;
  std::vector<CheckpointEntry> entries = step_directories(root);
  std::reverse(entries.begin(), entries.end());
  for (CheckpointEntry& entry : entries) {
    std::vector<Damage> damage = verify_checkpoint(entry.path);
    if (damage.empty()) {
      result.newest = std::move(entry);
      break;
    }
    result.passed_over.push_back({std::move(entry), std::move(damage)});
  }
  return result;
}

std::string advice_for_damaged(const IntactCheckpoint& others) {
  if (!others.newest) return "no checkpoint beside it is intact";
  return str("the newest intact one is ", others.newest->path.string(),
             ": give this path instead (rondo train: --resume ", others.newest->path.string(),
             ", or --resume-intact)");
}

CheckpointFiles open_checkpoint_files(const fs::path& path) {
  const fs::path checkpoint = find_checkpoint(path);
  std::vector<Damage> damage;
  try {
    CheckpointFiles files(checkpoint);
    damage = damage_of(files);
    if (damage.empty()) return files;
  } catch (const DataError& e) {
    damage = {{std::string(Manifest::file_name), "", e.what()}};
  }
  throw DataError(str("checkpoint ", checkpoint.string(), " is damaged: ", describe(damage), "; ",
                      advice_for_damaged(newest_intact_checkpoint(parent_of_checkpoint(checkpoint)))));
}

void require_intact(const fs::path& checkpoint) { open_checkpoint_files(checkpoint); }

fs::path open_checkpoint(const fs::path& path) { return open_checkpoint_files(path).path(); }

void require_intact_if_of_checkpoint(const fs::path& file) {
  const fs::path directory = parent_of_checkpoint(file);
  std::error_code code;
  if (!fs::exists(directory / Manifest::file_name, code)) return;
  if (!is_step_directory(directory)) {
    // Somebody else's manifest.json may lie beside somebody else's weights.
    try {
      const Manifest manifest = read_manifest(directory);
      const auto named = [&](const FileRecord& record) { return record.name == file.filename(); };
      if (std::none_of(manifest.files.begin(), manifest.files.end(), named)) return;
    } catch (const DataError&) {
      return;
    }
  }
  require_intact(directory);
}

}  // namespace rondo
