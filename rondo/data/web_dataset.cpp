#include "rondo/data/web_dataset_options.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/image_samples.h"
#include "rondo/data/mapped_input.h"
#include "rondo/data/tar.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMostClasses = 1 << 24;

// Images in shards. What is kept of a sample is where it lies.
class ShardedImages final : public EncodedImages {
 public:
  explicit ShardedImages(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) add(path);
    starts_.push_back(size());
    if (samples_.empty()) {
      throw DataError(str("'", paths.front(),
                          "' has no sample: no member named *.jpg, *.jpeg or *.png with a "
                          "*.cls of the same name"));
    }
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  std::int64_t label(std::int64_t index) const override { return at(index).label; }
  std::string name(std::int64_t index) const override {
    return str(shards_[at(index).shard].path(), ", offset ", at(index).offset);
  }
  std::span<const std::uint8_t> read(std::int64_t index, std::string& /*storage*/) const override {
    const Sample& sample = at(index);
    return shards_[sample.shard].bytes().subspan(sample.offset, sample.bytes);
  }
  std::vector<std::int64_t> shard_starts() const override { return starts_; }
  std::int64_t classes() const { return classes_; }

 private:
  struct Sample {
    std::uint64_t offset;
    std::uint32_t bytes, shard;
    std::int32_t label;
  };
  // A sample while its members are read.
  struct Open {
    std::string key;
    std::optional<TarMember> image;
    std::optional<std::int32_t> label;
  };

  const Sample& at(std::int64_t index) const { return samples_[static_cast<std::size_t>(index)]; }

  void add(const std::string& path) {
    starts_.push_back(size());
    const MappedInput& shard = shards_.emplace_back(path);
    Open open;
    for (const TarMember& member : parse_tar(shard.bytes(), path)) {
      const std::size_t folder = member.name.rfind('/');
      const std::size_t dot = member.name.find('.', folder == std::string::npos ? 0 : folder + 1);
      const std::string key = member.name.substr(0, dot);
      const std::string ending = dot == std::string::npos ? "" : member.name.substr(dot + 1);
      if (key != open.key) {
        close(open, path);
        open = {.key = key, .image = {}, .label = {}};
      }
      if (ending == "jpg" || ending == "jpeg" || ending == "png") {
        open.image = member;
      } else if (ending == "cls") {
        open.label = label_of(shard, member);
      }
    }
    close(open, path);
  }

  static std::int32_t label_of(const MappedInput& shard, const TarMember& member) {
    const std::string_view text = trim(shard.text().substr(member.offset, member.size));
    std::int32_t label = -1;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), label);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size() || label < 0 ||
        label >= kMostClasses) {
      throw DataError(str("'", shard.path(), "', offset ", member.offset, ": ", member.name,
                          " is no class, expected a number from 0 to ", kMostClasses - 1));
    }
    return label;
  }

  void close(const Open& open, const std::string& path) {
    if (!open.image && !open.label) return;
    if (!open.image || !open.label) {
      throw DataError(str("'", path, "': sample ", open.key, " has no ",
                          open.image ? "class (.cls)" : "image (.jpg, .jpeg or .png)"));
    }
    if (open.image->size > UINT32_MAX)
      throw DataError(str("'", path, "': ", open.image->name, " has ", open.image->size, " bytes"));
    samples_.push_back({open.image->offset, static_cast<std::uint32_t>(open.image->size),
                        static_cast<std::uint32_t>(shards_.size() - 1), *open.label});
    classes_ = std::max<std::int64_t>(classes_, *open.label + 1);
  }

  std::vector<MappedInput> shards_;
  std::vector<std::int64_t> starts_;
  std::vector<Sample> samples_;
  std::int64_t classes_ = 0;
};

std::vector<std::string> tar_files(const std::string& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file() && entry.path().extension() == ".tar") found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

OpenedData open_web_dataset(const std::string& path, const DataOptions& options, const ImageOptions& own) {
  std::vector<std::string> train = tar_files(path);
  const auto first_held_back = std::stable_partition(train.begin(), train.end(), [](const std::string& file) {
    return !fs::path(file).filename().string().starts_with("val");
  });
  std::vector<std::string> validation(first_held_back, train.end());
  if (first_held_back != train.begin()) {
    train.erase(first_held_back, train.end());
  } else {
    validation.clear();  // there is nothing else
  }
  if (train.empty()) throw DataError(str("'", path, "' has no files named *.tar"));
  const auto images = std::make_shared<const ShardedImages>(train);
  std::shared_ptr<const ShardedImages> held_back;
  if (!validation.empty()) held_back = std::make_shared<const ShardedImages>(validation);
  DatasetInfo info{.kind = "webdataset", .source = path, .input_shape = {}, .classes = images->classes()};
  // What a model was trained on may have had more of them.
  const auto known = static_cast<std::int64_t>(options.known.class_names.size());
  if (known > 0 && images->classes() > known)
    throw DataError(str("'", path, "' has class ", images->classes() - 1, ", ", who_knows(options.known),
                        " knows 0 to ", known - 1));
  if (known > 0) info.classes = known;
  if (held_back && held_back->classes() > info.classes) {
    throw DataError(str("'", validation.front(), "' and its like have class ", held_back->classes() - 1,
                        ", the shards for training only 0 to ", info.classes - 1));
  }
  for (std::int64_t i = 0; i < info.classes; ++i) info.class_names.push_back(std::to_string(i));
  return open_image_samples(images, held_back, options, own, info);
}

bool detect_web_dataset(const std::string& path) {
  return fs::is_directory(path) ? !tar_files(path).empty() : path.ends_with(".tar");
}

}  // namespace

bool WebDatasetKind::detect(const std::string& /*name*/, const std::string& path) {
  return detect_web_dataset(path);
}

OpenedData WebDatasetKind::open(const std::string& /*name*/, const std::string& path,
                                const DataOptions& options, const Options& own) {
  return open_web_dataset(path, options, own);
}

}  // namespace rondo
