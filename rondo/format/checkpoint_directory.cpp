#include "rondo/format/checkpoint_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_files.h"
#include "rondo/format/checksum.h"
#include "rondo/format/file.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view format_name = "rondo-checkpoint";
// Version 2 has tensors in parts: KIND-00001-of-00004.safetensors.
constexpr int kWholeVersion = 1;
constexpr int kPartsVersion = 2;
constexpr std::size_t checksum_digits = 32;

// The checksum is the last member, so its digits are at a fixed distance from the end of the text.
constexpr std::string_view text_end = "\"\n}\n";

std::string sealed(std::string text) {
  const std::size_t at = text.size() - text_end.size() - checksum_digits;
  return text.replace(at, checksum_digits, checksum_hex(as_bytes(text)));
}

// Returns whether the file name stays inside the checkpoint directory; a manifest may contain any name.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name != Manifest::file_name;
}

std::string text_of(const Json& value, const char* key, const std::string& where) {
  return json_text(json_member(value, key, where), json_place(where, key));
}

std::uint64_t size_of(const Json& value, const std::string& where) {
  return static_cast<std::uint64_t>(
      json_integer(json_member(value, "bytes", where), json_place(where, "bytes"), 0));
}

FileRecord parse_file(const Json& value, const std::string& where) {
  FileRecord record{
      text_of(value, "name", where), size_of(value, where), text_of(value, "xxh3_128", where), {}};
  if (!is_plain_name(record.name))
    throw DataError(str("'", printable(record.name), "' is not a plain file name"));
  for (const Json& tensor : json_list(json_member(value, "tensors", where), json_place(where, "tensors"))) {
    const std::string of_tensor = str(where, ", tensor ", record.tensors.size());
    record.tensors.push_back({text_of(tensor, "name", of_tensor), size_of(tensor, of_tensor),
                              text_of(tensor, "xxh3_128", of_tensor)});
  }
  if (value.contains("header_xxh3_128")) record.header_checksum = text_of(value, "header_xxh3_128", where);
  return record;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  Json json;
  json["format"] = format_name;
  const bool has_parts =
      std::any_of(manifest.files.begin(), manifest.files.end(),
                  [](const FileRecord& file) { return file.name.find("-of-") != std::string::npos; });
  json["version"] = has_parts ? kPartsVersion : kWholeVersion;
  json["step"] = manifest.step;
  json["files"] = Json::array();
  for (const FileRecord& file : manifest.files) {
    Json tensors = Json::array();
    for (const TensorRecord& tensor : file.tensors) {
      tensors.push_back({{"name", tensor.name}, {"bytes", tensor.bytes}, {"xxh3_128", tensor.checksum}});
    }
    Json entry{{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.checksum}};
    if (!file.header_checksum.empty()) entry["header_xxh3_128"] = file.header_checksum;
    entry["tensors"] = std::move(tensors);
    json["files"].push_back(std::move(entry));
  }
  json["checksum"] = std::string(checksum_digits, '0');
  return sealed(json.dump(1) + "\n");
}

Manifest parse_manifest(std::string_view text, const std::string& file) {
  std::string zeroed(text);
  if (!text.ends_with(text_end) || text.size() < text_end.size() + checksum_digits) {
    throw DataError(str(file, ": the manifest is incomplete (truncated?)"));
  }
  const std::size_t at = text.size() - text_end.size() - checksum_digits;
  zeroed.replace(at, checksum_digits, checksum_digits, '0');
  if (sealed(zeroed) != text) {
    throw DataError(str(file, ": its own checksum is ", text.substr(at, checksum_digits),
                        ", its text gives another one: the manifest is damaged"));
  }
  const Json json = parse_json_strict(text, file);
  try {
    const bool is_known = json.at("version") == kWholeVersion || json.at("version") == kPartsVersion;
    if (json.at("format") != format_name || !is_known) {
      const bool newer = json.at("version").is_number() && json.at("version") > kPartsVersion;
      throw DataError(str("format ", json.at("format").dump(), " version ", json.at("version").dump(),
                          ", expected \"", format_name, "\" version ", kWholeVersion, " or ", kPartsVersion,
                          newer ? "; a newer rondo has written it" : ""));
    }
    Manifest manifest{json_integer(json.at("step"), "step", 0), {}};
    std::unordered_set<std::string> names;
    for (const Json& value : json_list(json.at("files"), "\"files\"")) {
      manifest.files.push_back(parse_file(value, str("file ", manifest.files.size())));
      if (!names.insert(manifest.files.back().name).second)
        throw DataError(str("file '", printable(manifest.files.back().name), "' is listed twice"));
    }
    return manifest;
  } catch (const Json::exception& e) {
    throw DataError(str(file, ": ", json_problem(e)));
  } catch (const DataError& e) {
    throw DataError(str(file, ": ", e.what()));
  }
}

Manifest read_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / Manifest::file_name;
  return parse_manifest(read_text_file(path), path.string());
}

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

// Returns the path without a trailing slash.
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

namespace {

constexpr std::size_t kMostUnsynced = 64;

// Locks a directory until the descriptor is closed. Returns -1 if another process holds the lock or the
// directory no longer exists.
int lock_directory(const fs::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return -1;
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 || !is_still_at(descriptor, directory)) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

// Creates a directory with a unique name.
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
  // A cleaner may remove the new directory as abandoned before it is locked; retry then.
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = make_hidden_directory(root_, checkpoint_name(manifest_.step));
    lock_ = lock_directory(temporary_);
    // without flock (some network file systems): continue unlocked
    if (lock_ >= 0 || fs::exists(temporary_)) return;
  }
  throw Error(
      str("cannot create a directory in ", root_.string(), ": another process removes it immediately"));
}

SafetensorsWriter CheckpointWriter::open_tensors(const std::string& file_name,
                                                 const std::vector<TensorSpec>& tensors,
                                                 const std::map<std::string, std::string>& metadata) {
  return {temporary_ / file_name, tensors, metadata};
}

void CheckpointWriter::add_unsynced(OutputFile file) {
  // Limits the number of open files.
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
  // Checks the linked file itself, and does not follow a symbolic link.
  bool is_equal = false;
  try {
    is_equal = fs::is_regular_file(fs::symlink_status(name)) &&
               checksum_hex(MappedFile(name).bytes()) == record.checksum;
  } catch (const DataError&) {
    // An unreadable file counts as different.
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
    // The manifest may reach the disk before the other files: readers ignore the directory until it has its
    // final name.
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
  // A checkpoint of this step exists, because training resumed from an earlier one: exchanges both names
  // atomically.
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) != 0) {
    throw Error(str("cannot replace ", final_path.string(), ": ", errno_text(errno),
                    "; this file system cannot exchange directories, so delete or move the old one"));
  }
  sync_directory(root_);
  fs::remove_all(temporary_);  // contains the old checkpoint now
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
