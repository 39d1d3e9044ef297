#include "rondo/data/image_folder_options.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/regular_file.h"
#include "rondo/base/text.h"
#include "rondo/data/image_names.h"
#include "rondo/data/image_samples.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// The ending in small letters, without its dot.
std::string ending_of(const fs::path& path) {
  const std::string ending = lower_case(path.extension().string());
  return ending.empty() ? ending : ending.substr(1);
}

bool is_image_file(const fs::path& path) { return is_image_ending(ending_of(path)); }

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// Files below a folder.
struct FoundImages {
  std::vector<std::string> files;  // images, sorted: the order of a directory differs between file systems
  std::map<std::string, std::int64_t>
      others;  // how many images of each ending are in a format that is not read
};

FoundImages images_below(const fs::path& folder) {
  FoundImages found;
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
    if (is_hidden(entry->path())) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (!entry->is_regular_file()) {
      continue;
    } else if (is_image_file(entry->path())) {
      found.files.push_back(entry->path().string());
    } else if (const std::string ending = ending_of(entry->path()); is_unread_image_ending(ending)) {
      ++found.others[ending];
    }
  }
  std::sort(found.files.begin(), found.files.end());
  return found;
}

// Says how many images are in formats that are not read: "12 .webp and 1 .gif".
std::string describe_unread(const std::map<std::string, std::int64_t>& others) {
  std::vector<std::string> parts;
  for (const auto& [ending, count] : others) parts.push_back(str(count, " .", ending));
  return join(parts, " and ");
}

std::vector<std::string> class_folders(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && !is_hidden(entry.path())) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Files of images and their classes.
class ImageFiles final : public EncodedImages {
 public:
  // Classes that are known are taken as they are; otherwise they are the folders that have images. Throws
  // DataError for a folder whose images are all in formats that are not read; other folders without an image
  // are named in a warning, and so are images that are left out.
  ImageFiles(const fs::path& folder, const KnownData& known) : classes_(known.class_names) {
    const bool is_known = !classes_.empty();
    for (const std::string& name : class_folders(folder)) {
      auto [files, others] = images_below(folder / name);
      const std::string path = (folder / name).string();
      if (files.empty() && !others.empty()) {
        throw DataError(str("'", path, "': class ", name, " has ", describe_unread(others),
                            " and no .jpg, .jpeg or .png file; convert them, or move the folder away"));
      }
      if (files.empty()) {
        log::warning("'", path, "' has no .jpg, .jpeg or .png file: ", name, " is no class");
        continue;
      }
      if (!others.empty())
        log::warning("'", path, "': left out ", describe_unread(others), ", which are not read");
      auto found = std::find(classes_.begin(), classes_.end(), name);
      if (found == classes_.end() && is_known) {
        throw DataError(str("'", path, "': class ", name, " is not among those that ", who_knows(known),
                            " knows: ", join(classes_, ", ")));
      }
      if (found == classes_.end()) found = classes_.insert(classes_.end(), name);
      labels_.insert(labels_.end(), files.size(), static_cast<std::int32_t>(found - classes_.begin()));
      std::move(files.begin(), files.end(), std::back_inserter(files_));
    }
    if (files_.empty()) {
      throw DataError(
          str("'", folder.string(),
              "' has no .jpg, .jpeg or .png file in a folder below it; expected a folder for each "
              "class"));
    }
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  std::int64_t label(std::int64_t index) const override { return labels_[static_cast<std::size_t>(index)]; }
  std::string name(std::int64_t index) const override { return files_[static_cast<std::size_t>(index)]; }
  std::span<const std::uint8_t> read(std::int64_t index, std::string& storage) const override {
    storage = read_regular_file(files_[static_cast<std::size_t>(index)]);
    return {reinterpret_cast<const std::uint8_t*>(storage.data()), storage.size()};
  }
  std::vector<std::int64_t> file_starts() const override {  // a file an image
    std::vector<std::int64_t> starts(files_.size() + 1);
    std::iota(starts.begin(), starts.end(), std::int64_t{0});
    return starts;
  }
  const std::vector<std::string>& class_names() const { return classes_; }

 private:
  std::vector<std::string> classes_;
  std::vector<std::string> files_;
  std::vector<std::int32_t> labels_;
};

// The folder's training and validation parts; the second is empty without one.
std::pair<fs::path, fs::path> parts_of(const fs::path& folder) {
  if (!fs::is_directory(folder / "train")) return {folder, {}};
  for (const char* name : {"val", "validation"}) {
    if (fs::is_directory(folder / name)) return {folder / "train", folder / name};
  }
  return {folder / "train", {}};
}

OpenedData open_image_folder(const std::string& path, const DataOptions& options, const ImageOptions& own) {
  if (!fs::is_directory(path))
    throw DataError(str("'", path, "' is no directory, expected one with a folder for each class"));
  const auto [train, validation] = parts_of(path);
  const auto files = std::make_shared<const ImageFiles>(train, options.known);
  std::shared_ptr<const ImageFiles> held_back;
  if (!validation.empty()) {
    const bool trains = options.known.class_names.empty();
    const KnownData known{.class_names = files->class_names(),
                          .source = trains ? train.string() : options.known.source};
    held_back = std::make_shared<const ImageFiles>(validation, known);
  }
  DatasetInfo info{.kind = "image_folder", .source = path, .input_shape = {}};
  info.class_names = files->class_names();
  info.classes = static_cast<std::int64_t>(info.class_names.size());
  return open_image_samples(files, held_back, options, own, info);
}

// Looks at few files: the first of a few classes.
bool detect_image_folder(const std::string& path) {
  if (!fs::is_directory(path)) return false;
  const fs::path folder = parts_of(path).first;
  for (const std::string& name : class_folders(folder)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder / name)) {
      if (!entry.is_regular_file() || is_hidden(entry.path())) continue;
      const std::string ending = ending_of(entry.path());
      return is_image_ending(ending) || is_unread_image_ending(ending);
    }
  }
  return false;
}

}  // namespace

bool ImageFolderKind::detect(const std::string& /*name*/, const std::string& path) {
  return detect_image_folder(path);
}

OpenedData ImageFolderKind::open(const std::string& /*name*/, const std::string& path,
                                 const DataOptions& options, const Options& own) {
  return open_image_folder(path, options, own);
}

}  // namespace rondo
