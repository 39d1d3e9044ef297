#include "rondo/data/image_files.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/log.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/data/image/image_options.h"
#include "rondo/data/subset.h"
#include "rondo/data/training_sampler.h"

namespace rondo {

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

bool is_image_ending(std::string_view ending) {
  return ending == "jpg" || ending == "jpeg" || ending == "png";
}

bool is_unread_image_ending(std::string_view ending) {
  static constexpr std::array<std::string_view, 15> known = {"webp", "gif",  "bmp", "tif",  "tiff",
                                                             "ppm",  "pgm",  "pbm", "avif", "heic",
                                                             "heif", "jfif", "jpe", "jp2",  "jxl"};
  return std::find(known.begin(), known.end(), ending) != known.end();
}

namespace {

ColourScale colour_scale(const ImageOptions& options) {
  const auto mean = colour_numbers(options.mean, "image-mean");
  const auto deviation = colour_numbers(options.deviation, "image-deviation");
  ColourScale colours;
  for (std::size_t c = 0; c < 3; ++c) {
    if (!(deviation[c] > 0)) throw UsageError(str("image-deviation ", deviation[c], ": expected above 0"));
    colours.scale[c] = static_cast<float>(1 / (255 * deviation[c]));
    colours.shift[c] = static_cast<float>(-mean[c] / deviation[c]);
  }
  return colours;
}

// A subset of a sharded data set that keeps the order of shards.
class ShardedSubset final : public Dataset, public EpochOrder, public DataFiles {
 public:
  ShardedSubset(const std::shared_ptr<const Dataset>& data, std::vector<std::int64_t> indices,
                const std::vector<std::int64_t>& starts, std::int64_t window)
      : subset_(data, indices), window_(window) {
    // Indices ascend, so the samples of each shard stay contiguous.
    for (const std::int64_t start : starts)
      starts_.push_back(std::lower_bound(indices.begin(), indices.end(), start) - indices.begin());
  }
  std::int64_t size() const override { return subset_.size(); }
  Batch get(std::span<const std::int64_t> indices) const override { return subset_.get(indices); }
  Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const override {
    return subset_.get_at_epoch(indices, epoch);
  }
  const DatasetInfo& info() const override { return subset_.info(); }
  std::vector<std::int64_t> file_starts() const override { return subset_.file_starts(); }
  std::vector<std::int64_t> shuffled(std::uint64_t seed) const override {
    return order_of_shards(starts_, window_, seed);
  }

 private:
  Subset subset_;
  std::int64_t window_;
  std::vector<std::int64_t> starts_;
};

std::vector<std::int64_t> all_of(std::int64_t size) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

}  // namespace

ImageSamples::ImageSamples(std::shared_ptr<const EncodedImages> images, const ImageOptions& options,
                           std::uint64_t seed, bool training, DatasetInfo info)
    : images_(std::move(images)),
      options_(options),
      seed_(seed),
      training_(training),
      info_(std::move(info)),
      colours_(colour_scale(options)) {
  info_.input_shape = {3, options.size, options.size};
}

Batch ImageSamples::get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  check_indices(indices, size());
  const auto asked = static_cast<std::int64_t>(indices.size());
  Batch batch{.inputs = {at::empty({asked, 3, options_.size, options_.size}, at::kFloat)},
              .targets = {at::empty({asked}, at::kLong)},
              .samples = 0};
  auto* input = batch.inputs[0].mutable_data_ptr<float>();
  auto* target = batch.targets[0].mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    try {
      write_sample(index, epoch, input);
    } catch (const DataError& error) {
      if (options_.corrupt != "skip") throw DataError(str("'", images_->name(index), "': ", error.what()));
      skip(index, error.what());
      continue;
    }
    input += 3 * options_.size * options_.size;
    *target++ = images_->label(index);
    batch.indices.push_back(index);
    ++batch.samples;
  }
  if (batch.samples < asked) {
    batch.inputs[0] = batch.inputs[0].narrow(0, 0, batch.samples);
    batch.targets[0] = batch.targets[0].narrow(0, 0, batch.samples);
  }
  return batch;
}

void ImageSamples::write_sample(std::int64_t index, std::int64_t epoch, float* to) const {
  std::string storage;
  const std::span<const std::uint8_t> file = images_->read(index, storage);
  bool mirrored = false;
  DecodeRequest request{
      .choose = {}, .size = static_cast<int>(options_.size), .may_scale = options_.decode == "scaled"};
  request.choose = [&](int width, int height) {
    if (!training_) return middle_view(width, height).box;
    // Epochs are a large odd number apart, so that no two (seed, epoch) pairs of a training collide.
    RandomStream random(seed_ + static_cast<std::uint64_t>(epoch) * 0x9E3779B97F4A7C15ULL,
                        static_cast<std::uint64_t>(index));
    const ImageView view = random_view(options_, width, height, random);
    mirrored = view.mirrored;
    return view.box;
  };
  const DecodedPart part = decode_image(file, request);
  resample(part, request.size, mirrored, colours_, to);
}

void ImageSamples::skip(std::int64_t index, const std::string& reason) const {
  std::size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!skipped_.insert(index).second) return;
    count = skipped_.size();
  }
  log::warning("skipped '", images_->name(index), "': ", reason, " (", count, " skipped so far)");
}

std::int64_t ImageSamples::skipped() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(skipped_.size());
}

OpenedData open_image_samples(std::shared_ptr<const EncodedImages> train,
                              std::shared_ptr<const EncodedImages> validation, const DataOptions& options,
                              const ImageOptions& own, const DatasetInfo& info) {
  check_validation_fraction(options.validation_fraction);
  const bool trains = options.known.class_names.empty();
  const std::vector<std::int64_t> starts = train->shard_starts();
  const auto samples = std::make_shared<ImageSamples>(train, own, options.seed, trains, info);
  OpenedData opened{.kind = info.kind, .train = samples, .validation = nullptr};
  std::vector<std::int64_t> kept;
  if (validation) {
    opened.validation = std::make_shared<ImageSamples>(std::move(validation), own, options.seed, false, info);
  } else if (options.validation_fraction > 0.0) {
    SplitIndices split = split_indices(samples->size(), options.validation_fraction, options.split_seed);
    opened.validation = std::make_shared<Subset>(
        std::make_shared<ImageSamples>(std::move(train), own, options.seed, false, info),
        std::move(split.validation));
    kept = std::move(split.train);
    opened.train = std::make_shared<Subset>(samples, kept);
  }
  if (starts.size() > 2) {
    opened.train = std::make_shared<ShardedSubset>(
        samples, opened.train == samples ? all_of(samples->size()) : std::move(kept), starts,
        own.shuffle_window);
  }
  return opened;
}

namespace {

namespace fs = std::filesystem;

// Returns the extension in lower case, without its dot.
std::string ending_of(const fs::path& path) {
  const std::string ending = lower_case(path.extension().string());
  return ending.empty() ? ending : ending.substr(1);
}

bool is_image_file(const fs::path& path) { return is_image_ending(ending_of(path)); }

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// Image files below a folder.
struct FoundImages {
  std::vector<std::string> files;  // sorted, because the directory order differs between file systems
  std::map<std::string, std::int64_t> others;  // number of images in unsupported formats, by extension
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

// Returns the numbers of images in unsupported formats: "12 .webp and 1 .gif".
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

// Image files with their classes.
class ImageFiles final : public EncodedImages {
 public:
  // Uses the known classes, or else the folders that contain images. Throws DataError for a folder whose
  // images are all in unsupported formats. Logs a warning for other folders without an image and for skipped
  // images.
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
        throw DataError(str("'", path, "': class ", name, " is not among those that ",
                            source_of_properties(known), " knows: ", join(classes_, ", ")));
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
  std::vector<std::int64_t> file_starts() const override {  // each image is a file
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

// Returns the folder's training and validation parts; the second is empty if missing.
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

// Detects an image folder from a few files: the first ones of a few classes.
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
