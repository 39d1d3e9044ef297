#include "rondo/format/checkpoint_directory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/file.h"

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

// The tensors of a damaged file whose own checksum differs; the header alone is to blame when there is none.
std::vector<Damage> damaged_tensors(const fs::path& path, const FileRecord& record) {
  std::vector<Damage> found;
  try {
    const SafetensorsFile file(path);
    for (const TensorRecord& tensor : record.tensors) {
      const TensorEntry* entry = file.find(tensor.name);
      if (entry == nullptr) {
        found.push_back({record.name, tensor.name, "is missing"});
      } else if (checksum_hex(file.data(*entry)) != tensor.checksum) {
        found.push_back(
            {record.name, tensor.name, "its elements have another checksum than the manifest says"});
      }
    }
  } catch (const DataError& e) {
    return {{record.name, "", e.what()}};
  }
  if (found.empty())
    found.push_back({record.name, "", "the file has another checksum than the manifest says"});
  return found;
}

std::vector<Damage> verify_file(const fs::path& checkpoint, const FileRecord& record) {
  const fs::path path = checkpoint / record.name;
  try {
    const MappedFile file(path);
    if (file.bytes().size() != record.bytes) {
      return {
          {record.name, "", str("has ", file.bytes().size(), " bytes, the manifest says ", record.bytes)}};
    }
    if (checksum_hex(file.bytes()) == record.checksum) return {};
  } catch (const DataError& e) {
    return {{record.name, "", e.what()}};
  }
  if (record.tensors.empty()) {
    return {{record.name, "", "the file has another checksum than the manifest says"}};
  }
  return damaged_tensors(path, record);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "step-%08lld", static_cast<long long>(step));
  return name.data();
}

std::vector<CheckpointEntry> list_checkpoints(const fs::path& root) {
  std::vector<CheckpointEntry> entries;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, code)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && is_complete(entry.path(), *step)) entries.push_back({*step, entry.path()});
  }
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.step < b.step; });
  return entries;
}

std::optional<CheckpointEntry> newest_checkpoint(const fs::path& root) {
  const std::vector<CheckpointEntry> entries = list_checkpoints(root);
  if (entries.empty()) return std::nullopt;
  return entries.back();
}

fs::path find_checkpoint(const fs::path& path) {
  if (!fs::exists(path)) throw DataError(str("no checkpoint: ", path.string(), " does not exist"));
  if (!fs::is_directory(path)) throw DataError(str("no checkpoint: ", path.string(), " is not a directory"));
  if (fs::exists(path / Manifest::file_name)) return path;
  for (const fs::path& root : {path, path / "checkpoints"}) {
    if (const auto newest = newest_checkpoint(root)) return newest->path;
  }
  throw DataError(str("no checkpoint: ", path.string(), " holds no ", Manifest::file_name,
                      ", no complete step-* directory and no checkpoints/ with one"));
}

std::vector<Damage> verify_checkpoint(const fs::path& checkpoint) {
  Manifest manifest;
  try {
    manifest = read_manifest(checkpoint);
  } catch (const DataError& e) {
    return {{std::string(Manifest::file_name), "", e.what()}};
  }
  std::vector<Damage> found;
  std::set<std::string> known{std::string(Manifest::file_name)};
  for (const FileRecord& record : manifest.files) {
    known.insert(record.name);
    const std::vector<Damage> damage = verify_file(checkpoint, record);
    found.insert(found.end(), damage.begin(), damage.end());
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (!known.contains(name)) found.push_back({name, "", "is not in the manifest"});
  }
  return found;
}

}  // namespace rondo
