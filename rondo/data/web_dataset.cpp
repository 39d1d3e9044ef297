#include "rondo/data/web_dataset_options.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/data/image_names.h"
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
    warn_of_skipped();
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
    std::vector<std::string> others;  // names of members that are neither
  };

  const Sample& at(std::int64_t index) const { return samples_[static_cast<std::size_t>(index)]; }

  void add(const std::string& path) {
    starts_.push_back(size());
    const MappedInput& shard = shards_.emplace_back(path);
    Open open;
    for (const TarMember& member : parse_tar(shard.bytes(), path)) {
      const std::size_t slash = member.name.rfind('/');
      const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
      const std::size_t dot = member.name.find('.', base);
      // As WebDataset: hidden files (and the ._name files of a Mac) and names without an ending are no part
      // of a sample.
      if (dot == std::string::npos || dot == base) {
        skip(member.name, path);
        continue;
      }
      const std::string key = member.name.substr(0, dot);
      if (key != open.key) {
        close(open, path);
        open = {.key = key, .image = {}, .label = {}, .others = {}};
      }
      take(open, member, lower_case(member.name.substr(dot + 1)), shard);
    }
    close(open, path);
  }

  // Puts a member into the open sample. Throws DataError for a second image or class.
  static void take(Open& open, const TarMember& member, const std::string& ending, const MappedInput& shard) {
    const bool is_image = is_image_ending(ending), is_class = ending == "cls";
    if (!is_image && !is_class) {
      open.others.push_back(member.name);
      return;
    }
    const auto fail = [&](const std::string& what) {
      throw DataError(str("'", shard.path(), "': ", member.name, " is ", what));
    };
    if (!member.unreadable.empty()) fail(member.unreadable);
    if (is_image && open.image)
      fail(str("a second image of its sample, besides ", open.image->name, ", expected one"));
    if (is_class && open.label) fail("a second class of its sample, expected one");
    if (is_image) open.image = member;
    if (is_class) open.label = label_of(shard, member);
  }

  // Whether a name ends as an image or a class behind its last dot, which is not its first.
  static bool is_misnamed(const std::string& name) {
    const std::string last = lower_case(name.substr(name.rfind('.') + 1));
    return is_image_ending(last) || last == "cls";
  }

  void skip(const std::string& name, const std::string& path) {
    constexpr std::size_t kNamed = 5;
    if (skipped_++ < kNamed) skipped_names_.push_back(str(path, ": ", name));
  }

  void warn_of_skipped() const {
    if (skipped_ == 0) return;
    log::warning(skipped_, skipped_ == 1 ? " member belongs" : " members belong",
                 " to no sample with an image and a class, and was left out: ", join(skipped_names_, ", "),
                 skipped_ > skipped_names_.size() ? ", ..." : "");
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
    const auto misnamed = std::find_if(open.others.begin(), open.others.end(), is_misnamed);
    if (misnamed != open.others.end() && (!open.image || !open.label)) {
      throw DataError(str("'", path, "': the ending of ", *misnamed, " is all behind its first dot, '",
                          misnamed->substr(open.key.size() + 1),
                          "', expected cls, jpg, jpeg or png; rename the members"));
    }
    if (!open.image && !open.label) {
      for (const std::string& name : open.others) skip(name, path);
      return;
    }
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
  std::size_t skipped_ = 0;                 // members of no sample
  std::vector<std::string> skipped_names_;  // the first of them
};

std::vector<std::string> tar_files(const std::string& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const bool is_hidden = entry.path().filename().string().starts_with('.');
    if (!is_hidden && entry.is_regular_file() && lower_case(entry.path().extension()) == ".tar")
      found.push_back(entry.path().string());
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
