#include "rondo/data/web_dataset.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/data/data_files.h"
#include "rondo/data/image/image_options.h"
#include "rondo/data/image_files.h"

namespace rondo {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kChecksumAt = 148, kChecksumBytes = 8;
// Limit for long names; no file system has longer ones.
constexpr std::size_t kLongestName = 64 << 10;

// A symbolic link; its target may come later in the archive.
struct SymbolicLink {
  std::size_t member;  // index among the members
  std::string target;  // target as written, relative to the link's folder
};

// Returns the path without "." and "..".
std::string plain_path(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().relative_path().string();
}

class TarReader {
 public:
  TarReader(std::span<const std::uint8_t> archive, const std::string& path)
      : archive_(archive), path_(path) {}

  std::vector<TarMember> read() {
    bool ended = false;
    while (at_ < archive_.size()) {
      const std::span<const std::uint8_t> header =
          archive_.subspan(at_, std::min(kBlock, archive_.size() - at_));
      // Two blocks of zeros end an archive and fill its last record; one is accepted too.
      if (std::all_of(header.begin(), header.end(), [](std::uint8_t byte) { return byte == 0; })) {
        ended = true;
        at_ += header.size();
        continue;
      }
      if (ended && !is_header(header)) fail("unexpected bytes after the end of the archive");
      if (header.size() < kBlock) fail("the archive ends within a header");
      ended = false;
      check_sum(header);
      read_member(header);
    }
    for (const SymbolicLink& link : symbolic_links_) follow(link);
    return std::move(members_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(str("'", path_, "', offset ", at_, ": ", what, ", expected a tar archive"));
  }

  // Reads one header and skips its content.
  void read_member(std::span<const std::uint8_t> header) {
    const char type = static_cast<char>(header[156]);
    const bool is_link = type == '1' || type == '2';
    const bool describes_next = type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g';
    const std::size_t content = content_behind(header);
    std::size_t size = 0;
    if (!describes_next && extended_.size) {
      size = *extended_.size;
    } else if (!is_link) {  // for a hard link, GNU tar writes the size of the file but not the file
      size = number(header.subspan(124, 12), "a size");
    }
    if (size > archive_.size() - content)
      fail(str("a member of ", size, " bytes, but only ", archive_.size() - content, " follow"));
    if (describes_next) {
      if (size > kLongestName) fail(str("a name of ", size, " bytes"));
      const std::string_view text(reinterpret_cast<const char*>(archive_.data()) + content, size);
      if (type == 'L') extended_.name = text.substr(0, text.find('\0'));
      if (type == 'K') extended_.target = text.substr(0, text.find('\0'));
      if (type == 'x' || type == 'X') read_extended(text);
    } else {
      const std::string name = extended_.name.empty() ? short_name(header) : extended_.name;
      const std::string target =
          extended_.target.empty() ? std::string(field(header, 157, 100)) : extended_.target;
      const bool is_directory = type == '5' || (type == '\0' && name.ends_with('/'));
      if (!is_directory && type != 'V') add(name, type, target, content, size);
      extended_ = {};
    }
    at_ = content + (size + kBlock - 1) / kBlock * kBlock;
  }

  // Returns the offset after the header. The old sparse format has additional blocks there.
  std::size_t content_behind(std::span<const std::uint8_t> header) const {
    std::size_t content = at_ + kBlock;
    for (bool more = header[156] == 'S' && header[482] != 0; more; content += kBlock) {
      if (archive_.size() - content < kBlock) fail("the archive ends within a header");
      more = archive_[content + 504] != 0;
    }
    return content;
  }

  void add(const std::string& name, char type, const std::string& target, std::size_t content,
           std::size_t size) {
    TarMember member{.name = name, .offset = content, .size = size};
    if (type == '1') {
      if (const auto place = place_of(target)) {
        member = members_[*place];
        member.name = name;
      } else {
        member.unreadable = str("a link to '", target, "', which is not in the archive before it");
      }
    } else if (type == '2') {
      member.unreadable = str("a link to '", target, "', which is not in the archive");
      symbolic_links_.push_back({members_.size(), target});
    } else if (type == 'S' || extended_.is_sparse) {
      member.unreadable = "a sparse file, of which not all bytes are stored (pack it without --sparse)";
    } else if (type != '0' && type != '\0' && type != '7') {
      member.unreadable = str("no file but of type '", type, "'");
    }
    members_.push_back(std::move(member));
  }

  // Gives a symbolic link the content of the member at the end of its chain of links.
  void follow(const SymbolicLink& link) {
    std::size_t place = link.member;
    std::string target = link.target;
    for (std::size_t steps = 0; steps <= symbolic_links_.size(); ++steps) {
      const std::string folder = std::filesystem::path(members_[place].name).parent_path().string();
      const auto found = place_of(str(folder, "/", target));
      if (target.starts_with('/') || !found) return;
      place = *found;
      const auto next = std::find_if(symbolic_links_.begin(), symbolic_links_.end(),
                                     [&](const SymbolicLink& other) { return other.member == place; });
      if (next == symbolic_links_.end()) {
        const std::string name = members_[link.member].name;
        members_[link.member] = members_[place];
        members_[link.member].name = name;
        return;
      }
      target = next->target;
    }
  }

  // Returns the last member so far with this path.
  std::optional<std::size_t> place_of(const std::string& path) {
    for (; indexed_ < members_.size(); ++indexed_) places_[plain_path(members_[indexed_].name)] = indexed_;
    const auto found = places_.find(plain_path(path));
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

  // Returns a text field up to its first zero byte.
  static std::string_view field(std::span<const std::uint8_t> header, std::size_t at, std::size_t length) {
    const std::string_view text(reinterpret_cast<const char*>(header.data()) + at, length);
    return text.substr(0, text.find('\0'));
  }

  std::size_t octal(std::string_view text, const char* what) const {
    text = trim(text);
    std::size_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value, 8);
    if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size())
      fail(str(what, " that is no octal number"));
    return value;
  }

  // Parses a number: octal text, or for large values the bytes after a first byte 0x80.
  std::size_t number(std::span<const std::uint8_t> field_bytes, const char* what) const {
    if (field_bytes[0] != 0x80) return octal(field(field_bytes, 0, field_bytes.size()), what);
    std::size_t value = 0;
    for (const std::uint8_t byte : field_bytes.subspan(1)) {
      if (value > SIZE_MAX >> 8) fail(str(what, " that is too large"));
      value = value << 8 | byte;
    }
    return value;
  }

  static std::size_t sum_of(std::span<const std::uint8_t> header) {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i)
      sum += i >= kChecksumAt && i < kChecksumAt + kChecksumBytes ? std::uint8_t{' '} : header[i];
    return sum;
  }

  bool is_header(std::span<const std::uint8_t> header) const {
    if (header.size() < kBlock) return false;
    try {
      return octal(field(header, kChecksumAt, kChecksumBytes), "a checksum") == sum_of(header);
    } catch (const DataError&) {
      return false;
    }
  }

  void check_sum(std::span<const std::uint8_t> header) const {
    const std::size_t sum = sum_of(header);
    if (const std::size_t said = octal(field(header, kChecksumAt, kChecksumBytes), "a checksum"); said != sum)
      fail(str("a header whose checksum is ", sum, " and not ", said));
  }

  static std::string short_name(std::span<const std::uint8_t> header) {
    const std::string_view prefix = field(header, 257, 5) == "ustar" ? field(header, 345, 155) : "";
    return prefix.empty() ? std::string(field(header, 0, 100)) : str(prefix, "/", field(header, 0, 100));
  }

  // Parses an extended header: records "LENGTH key=value\n".
  void read_extended(std::string_view records) {
    while (!records.empty()) {
      std::size_t length = 0;
      const auto result = std::from_chars(records.data(), records.data() + records.size(), length);
      const auto digits = static_cast<std::size_t>(result.ptr - records.data());
      if (result.ec != std::errc() || length <= digits + 1 || length > records.size())
        fail("an extended header that is damaged");
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      if (record.starts_with("path=")) extended_.name = record.substr(5);
      if (record.starts_with("linkpath=")) extended_.target = record.substr(9);
      if (record.starts_with("GNU.sparse.")) extended_.is_sparse = true;
      if (record.starts_with("size=")) {
        std::size_t size = 0;
        const auto end = std::from_chars(record.data() + 5, record.data() + record.size(), size);
        if (end.ec != std::errc() || end.ptr != record.data() + record.size())
          fail("an extended header with a size that is no number");
        extended_.size = size;
      }
      records.remove_prefix(length);
    }
  }

  // Properties of the next member, read from headers that precede the member's own header.
  struct Extended {
    std::string name, target;
    std::optional<std::size_t> size;
    bool is_sparse = false;
  };

  std::span<const std::uint8_t> archive_;
  const std::string& path_;
  std::size_t at_ = 0;
  Extended extended_;
  std::vector<TarMember> members_;
  // Index of the first `indexed_` members by path (the last one wins); filled on demand for links.
  std::unordered_map<std::string, std::size_t> places_;
  std::size_t indexed_ = 0;
  std::vector<SymbolicLink> symbolic_links_;
};

}  // namespace

std::vector<TarMember> parse_tar(std::span<const std::uint8_t> archive, const std::string& path) {
  return TarReader(archive, path).read();
}

namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMostClasses = 1 << 24;

// Images in shards. Stores only the location of each sample.
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
  // A sample whose members are being read.
  struct Open {
    std::string key;
    std::optional<TarMember> image;
    std::optional<std::int32_t> label;
    std::vector<std::string> others;  // names of the other members
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
      // Like WebDataset: hidden files (including ._name files of macOS) and names without an extension belong
      // to no sample.
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

  // Adds a member to the open sample. Throws DataError for a second image or class.
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

  // Returns whether the name has an image or class extension after its last dot.
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
  std::size_t skipped_ = 0;                 // number of members without a sample
  std::vector<std::string> skipped_names_;  // names of the first skipped members
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
    validation.clear();  // there are no other files
  }
  if (train.empty()) throw DataError(str("'", path, "' has no files named *.tar"));
  const auto images = std::make_shared<const ShardedImages>(train);
  std::shared_ptr<const ShardedImages> held_back;
  if (!validation.empty()) held_back = std::make_shared<const ShardedImages>(validation);
  DatasetInfo info{.kind = "webdataset", .source = path, .input_shape = {}, .classes = images->classes()};
  // The model's training data may have had more classes.
  const auto known = static_cast<std::int64_t>(options.known.class_names.size());
  if (known > 0 && images->classes() > known)
    throw DataError(str("'", path, "' has class ", images->classes() - 1, ", ",
                        source_of_properties(options.known), " knows 0 to ", known - 1));
  if (known > 0) info.classes = known;
  if (held_back && held_back->classes() > info.classes) {
    throw DataError(str("'", validation.front(), "' and the other validation shards have class ",
                        held_back->classes() - 1, ", the shards for training only 0 to ", info.classes - 1));
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
