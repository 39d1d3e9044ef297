#include "rondo/data/tar.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kChecksumAt = 148, kChecksumBytes = 8;
// A name as long as this is none that a file system has.
constexpr std::size_t kLongestName = 64 << 10;

class TarReader {
 public:
  TarReader(std::span<const std::uint8_t> archive, const std::string& path)
      : archive_(archive), path_(path) {}

  std::vector<TarMember> read() {
    std::vector<TarMember> members;
    std::string long_name;
    while (at_ < archive_.size()) {
      if (archive_.size() - at_ < kBlock) fail(str("the archive ends within a header"));
      const std::span<const std::uint8_t> header = archive_.subspan(at_, kBlock);
      // Two blocks of zeros end an archive; one may do.
      if (std::all_of(header.begin(), header.end(), [](std::uint8_t byte) { return byte == 0; })) break;
      check_sum(header);
      const std::size_t size = octal(field(header, 124, 12), "a size");
      const char type = static_cast<char>(header[156]);
      const std::size_t content = at_ + kBlock;
      if (size > archive_.size() - content) {
        fail(str("a member of ", size, " bytes, but only ", archive_.size() - content, " follow"));
      }
      if (type == 'L' || type == 'x') {
        if (size > kLongestName) fail(str("a name of ", size, " bytes"));
        const std::string_view text(reinterpret_cast<const char*>(archive_.data()) + content, size);
        const std::string name = type == 'L' ? std::string(text.substr(0, text.find('\0'))) : path_in(text);
        if (!name.empty()) long_name = name;
      } else if (type == '0' || type == '\0' || type == '7') {
        members.push_back({long_name.empty() ? short_name(header) : long_name, content, size});
        long_name.clear();
      } else if (type != 'g') {
        long_name.clear();  // of a directory or a link
      }
      at_ = content + (size + kBlock - 1) / kBlock * kBlock;
    }
    return members;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(str("'", path_, "', offset ", at_, ": ", what, ", expected a tar archive"));
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

  void check_sum(std::span<const std::uint8_t> header) const {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i)
      sum += i >= kChecksumAt && i < kChecksumAt + kChecksumBytes ? std::uint8_t{' '} : header[i];
    if (const std::size_t said = octal(field(header, kChecksumAt, kChecksumBytes), "a checksum"); said != sum)
      fail(str("a header whose checksum is ", sum, " and not ", said));
  }

  static std::string short_name(std::span<const std::uint8_t> header) {
    const std::string_view prefix = field(header, 257, 5) == "ustar" ? field(header, 345, 155) : "";
    return prefix.empty() ? std::string(field(header, 0, 100)) : str(prefix, "/", field(header, 0, 100));
  }

  // The path of an extended header: records "LENGTH key=value\n".
  std::string path_in(std::string_view records) const {
    std::string name;
    while (!records.empty()) {
      std::size_t length = 0;
      const auto result = std::from_chars(records.data(), records.data() + records.size(), length);
      const auto digits = static_cast<std::size_t>(result.ptr - records.data());
      if (result.ec != std::errc() || length <= digits + 1 || length > records.size())
        fail("an extended header that is damaged");
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      if (record.starts_with("path=")) name = record.substr(5);
      records.remove_prefix(length);
    }
    return name;
  }

  std::span<const std::uint8_t> archive_;
  const std::string& path_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<TarMember> parse_tar(std::span<const std::uint8_t> archive, const std::string& path) {
  return TarReader(archive, path).read();
}

}  // namespace rondo
