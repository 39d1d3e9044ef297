#include "rondo/format/checkpoint_files.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <system_error>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo {

namespace fs = std::filesystem;
namespace {

// Number of bytes below which comparing is faster than starting threads.
constexpr std::size_t kFew = std::size_t{4} << 20;
// More threads would be limited by memory bandwidth.
constexpr unsigned kMostThreads = 4;

// A range of bytes with its expected checksum.
struct Compared {
  std::size_t file = 0;  // index in the manifest
  std::span<const std::byte> bytes;
  const std::string* checksum = nullptr;
};

void add_pieces(std::size_t number, const FileRecord& record, const MappedFile& file,
                std::vector<Compared>& pieces) {
  const std::span<const std::byte> bytes = file.bytes();
  std::size_t left = bytes.size();
  const bool is_cut =
      !record.header_checksum.empty() &&
      std::all_of(record.tensors.begin(), record.tensors.end(), [&](const TensorRecord& tensor) {
        if (tensor.bytes > left) return false;
        left -= tensor.bytes;
        return true;
      });
  if (!is_cut) {
    pieces.push_back({number, bytes, &record.checksum});
    return;
  }
  // Beyond the header the tensors fill the whole file, so header and tensors cover all bytes.
  pieces.push_back({number, bytes.first(left), &record.header_checksum});
  for (const TensorRecord& tensor : record.tensors) {
    pieces.push_back({number, bytes.subspan(left, tensor.bytes), &tensor.checksum});
    left += tensor.bytes;
  }
}

void read_all_ahead(const std::vector<const MappedFile*>& files, const std::atomic<bool>& stops) {
  for (const MappedFile* file : files) file->read_ahead(stops);
}

// Returns the indices of the files with differences.
std::set<std::size_t> files_that_differ(const std::vector<Compared>& pieces,
                                        const std::vector<const MappedFile*>& files) {
  std::set<std::size_t> differ;
  std::mutex mutex;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < pieces.size(); i = next++) {
      if (checksum_hex(pieces[i].bytes) == *pieces[i].checksum) continue;
      const std::lock_guard lock(mutex);
      differ.insert(pieces[i].file);
    }
  };
  const std::size_t bytes =
      std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                      [](std::size_t sum, const Compared& piece) { return sum + piece.bytes.size(); });
  std::atomic<bool> stops = false;
  std::vector<std::thread> threads;
  if (bytes >= kFew) {
    try {
      threads.emplace_back([&] { read_all_ahead(files, stops); });
      for (unsigned i = 1; i < std::min(std::thread::hardware_concurrency(), kMostThreads); ++i)
        threads.emplace_back(work);
    } catch (const std::system_error&) {
      // Cannot start more threads: the existing ones do the work.
    }
  }
  work();
  stops = true;
  for (std::thread& thread : threads) thread.join();
  return differ;
}

// Returns the tensors of a damaged file whose own checksum differs; empty if only the header is damaged.
std::vector<Damage> damaged_tensors(const SafetensorsFile& file, const FileRecord& record) {
  std::vector<Damage> found;
  for (const TensorRecord& tensor : record.tensors) {
    const TensorEntry* entry = file.find(tensor.name);
    if (entry == nullptr) {
      found.push_back({record.name, tensor.name, "is missing"});
    } else if (checksum_hex(file.data(*entry)) != tensor.checksum) {
      found.push_back({record.name, tensor.name, "the checksum of its elements differs from the manifest"});
    }
  }
  return found;
}

// Checks the numbers from which training resumes. Other entries of "values" belong to the caller.
void check_position(const nlohmann::ordered_json& values, const std::string& where) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  for (const char* key : {"step", "epoch", "batch"})
    json_integer(json_member(values, key, where), json_place(where, key), 0, kMost);
  json_number(json_member(values, "elapsed_s", where), json_place(where, "elapsed_s"), 0);
  if (values.contains("world_size"))
    json_integer(values.at("world_size"), json_place(where, "world_size"), 1, 1 << 20);
}

void check_json(const MappedFile& file) {
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const std::string name = file.path().filename().string();
  const nlohmann::ordered_json document = parse_json_strict(text, name);
  const bool has_values = document.is_object() && document.contains("values");
  // Values with a time and an epoch were saved by a trainer.
  if (has_values && document.at("values").is_object() && document.at("values").contains("elapsed_s") &&
      document.at("values").contains("epoch"))
    check_position(document.at("values"), json_place(name, "values"));
}

// Checks the format of an unchanged file: a matching checksum does not prove that it is a valid tensor file.
std::vector<Damage> damage_of_form(const std::shared_ptr<const MappedFile>& file, const FileRecord& record) {
  try {
    if (file->path().extension() == ".safetensors") parse_safetensors(file->bytes(), record.name);
    if (file->path().extension() == ".json") check_json(*file);
    return {};
  } catch (const DataError& e) {
    return {{record.name, "", e.what()}};
  }
}

std::vector<Damage> damage_of_bytes(const std::shared_ptr<const MappedFile>& file, const FileRecord& record) {
  std::vector<Damage> found;
  try {
    if (!record.tensors.empty()) found = damaged_tensors(SafetensorsFile(file), record);
  } catch (const DataError& e) {
    return {{record.name, "", e.what()}};
  }
  if (found.empty()) found.push_back({record.name, "", "the checksum of the file differs from the manifest"});
  return found;
}

}  // namespace

CheckpointFiles::CheckpointFiles(fs::path checkpoint)
    : path_(std::move(checkpoint)), manifest_(read_manifest(path_)) {
  for (const FileRecord& record : manifest_.files) {
    try {
      mapped_.emplace(record.name,
                      std::make_shared<const MappedFile>(path_ / record.name, MappedFile::ReadAhead::none));
    } catch (const DataError& e) {
      unreadable_.emplace(record.name, e.what());
    }
  }
}

std::shared_ptr<SafetensorsFile> CheckpointFiles::tensors(const std::string& name) const {
  const auto found = mapped_.find(name);
  return found != mapped_.end() ? std::make_shared<SafetensorsFile>(found->second)
                                : std::make_shared<SafetensorsFile>(path_ / name);
}

std::vector<Damage> CheckpointFiles::compare() const {
  std::map<std::size_t, Damage> whole;  // problems of files found before their bytes are compared
  std::vector<Compared> pieces;
  std::vector<const MappedFile*> files;
  for (std::size_t number = 0; number < manifest_.files.size(); ++number) {
    const FileRecord& record = manifest_.files[number];
    const auto found = mapped_.find(record.name);
    if (found == mapped_.end()) {
      whole.insert({number, {record.name, "", unreadable_.at(record.name)}});
    } else if (const std::size_t bytes = found->second->bytes().size(); bytes != record.bytes) {
      whole.insert(
          {number, {record.name, "", str("has ", bytes, " bytes, the manifest says ", record.bytes)}});
    } else {
      add_pieces(number, record, *found->second, pieces);
      files.push_back(found->second.get());
    }
  }
  const std::set<std::size_t> differ = files_that_differ(pieces, files);
  std::vector<Damage> result;
  std::set<std::string> known{std::string(Manifest::file_name)};
  for (std::size_t number = 0; number < manifest_.files.size(); ++number) {
    const FileRecord& record = manifest_.files[number];
    known.insert(record.name);
    std::vector<Damage> found;
    if (const auto first = whole.find(number); first != whole.end()) {
      found = {first->second};
    } else {
      const auto& file = mapped_.at(record.name);
      found = differ.contains(number) ? damage_of_bytes(file, record) : damage_of_form(file, record);
    }
    result.insert(result.end(), found.begin(), found.end());
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (!known.contains(name)) result.push_back({name, "", "is not in the manifest"});
  }
  return result;
}

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
    result.skipped_checkpoints.push_back({std::move(entry), std::move(damage)});
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
    // Another program's manifest.json may be in the folder of another program's weights.
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
