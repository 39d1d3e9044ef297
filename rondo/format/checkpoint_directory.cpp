#include "rondo/format/checkpoint_directory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_files.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view name_prefix = "step-";

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(name_prefix)) return std::nullopt;
  const char* begin = name.data() + name_prefix.size();
  const char* end = name.data() + name.size();
  std::int64_t step = 0;
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || stop != end || step < 0 || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

// Without a slash at its end.
fs::path plain_path(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

bool is_complete(const fs::path& checkpoint, std::int64_t step) {
  try {
    const Manifest manifest = read_manifest(checkpoint);
    return manifest.step == step &&
           std::all_of(manifest.files.begin(), manifest.files.end(), [&](const FileRecord& file) {
             std::error_code code;
             return fs::file_size(checkpoint / file.name, code) == file.bytes && !code;
           });
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "step-%08lld", static_cast<long long>(step));
  return name.data();
}

std::vector<CheckpointEntry> step_directories(const fs::path& root) {
  std::vector<CheckpointEntry> entries;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, code)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && entry.is_directory(code)) entries.push_back({*step, entry.path()});
  }
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.step < b.step; });
  return entries;
}

std::vector<CheckpointEntry> list_checkpoints(const fs::path& root) {
  std::vector<CheckpointEntry> entries = step_directories(root);
  std::erase_if(entries, [](const CheckpointEntry& entry) { return !is_complete(entry.path, entry.step); });
  return entries;
}

bool is_step_directory(const fs::path& path) {
  return step_of(plain_path(path).filename().string()).has_value();
}

fs::path parent_of_checkpoint(const fs::path& path) {
  const fs::path plain = plain_path(path);
  return plain.has_parent_path() ? plain.parent_path() : fs::path(".");
}

std::optional<CheckpointEntry> newest_checkpoint(const fs::path& root) {
  const std::vector<CheckpointEntry> entries = step_directories(root);
  if (entries.empty()) return std::nullopt;
  return entries.back();
}

fs::path find_checkpoint(const fs::path& path) {
  if (!fs::exists(path)) throw DataError(str("no checkpoint: ", path.string(), " does not exist"));
  if (!fs::is_directory(path)) throw DataError(str("no checkpoint: ", path.string(), " is not a directory"));
  if (is_step_directory(path) || fs::exists(path / Manifest::file_name)) return path;
  for (const fs::path& root : {path, path / "checkpoints"}) {
    if (const auto newest = newest_checkpoint(root)) return newest->path;
  }
  throw DataError(str("no checkpoint: ", path.string(), " holds no ", Manifest::file_name,
                      ", no step-* directory and no checkpoints/ with one"));
}

std::vector<Damage> damage_of(const CheckpointFiles& files) {
  std::vector<Damage> found = files.compare();
  const fs::path& checkpoint = files.path();
  const std::int64_t step = files.manifest().step;
  if (is_step_directory(checkpoint) && plain_path(checkpoint).filename() != checkpoint_name(step)) {
    found.insert(found.begin(), {std::string(Manifest::file_name), "",
                                 str("is of step ", step, ", which is not the directory's name")});
  }
  return found;
}

std::vector<Damage> verify_checkpoint(const fs::path& checkpoint) {
  std::optional<CheckpointFiles> files;
  try {
    files.emplace(checkpoint);
  } catch (const DataError& e) {
    return {{std::string(Manifest::file_name), "", e.what()}};
  }
  return damage_of(*files);
}

}  // namespace rondo
