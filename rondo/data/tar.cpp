#include "rondo/data/tar.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kChecksumAt = 148, kChecksumBytes = 8;
// A name as long as this is none that a file system has.
constexpr std::size_t kLongestName = 64 << 10;

// A symbolic link, whose target may come later.
struct SymbolicLink {
  std::size_t member;  // its place among the members
  std::string target;  // as it is written: from the link's folder on
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
      // Two blocks of zeros end an archive, and fill up its last record; one may do.
      if (std::all_of(header.begin(), header.end(), [](std::uint8_t byte) { return byte == 0; })) {
        ended = true;
        at_ += header.size();
        continue;
      }
      if (ended && !is_header(header)) fail("bytes behind the end of the archive that are no other archive");
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

  // Reads one header and passes over what belongs to it.
  void read_member(std::span<const std::uint8_t> header) {
    const char type = static_cast<char>(header[156]);
    const bool is_link = type == '1' || type == '2';
    const bool describes_next = type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g';
    const std::size_t content = content_behind(header);
    std::size_t size = 0;
    if (!describes_next && extended_.size) {
      size = *extended_.size;
    } else if (!is_link) {  // GNU tar writes the size of a hard link's file, but not the file
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

  // Returns the offset behind the header; the older form of sparse files has more blocks with holes there.
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

  // Returns the last of the members until now with this path.
  std::optional<std::size_t> place_of(const std::string& path) {
    for (; indexed_ < members_.size(); ++indexed_) places_[plain_path(members_[indexed_].name)] = indexed_;
    const auto found = places_.find(plain_path(path));
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

  // Up to the first zero.
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

  // A number as text, or, where it is too large for that, as bytes behind a first one of 0x80.
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

  // Reads an extended header: records "LENGTH key=value\n".
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

  // Properties of the next member, from the headers before its own.
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
  // The first `indexed_` members by their paths, the last of each; filled when a link asks for them.
  std::unordered_map<std::string, std::size_t> places_;
  std::size_t indexed_ = 0;
  std::vector<SymbolicLink> symbolic_links_;
};

}  // namespace

std::vector<TarMember> parse_tar(std::span<const std::uint8_t> archive, const std::string& path) {
  return TarReader(archive, path).read();
}

}  // namespace rondo
