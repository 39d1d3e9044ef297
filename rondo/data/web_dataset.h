#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// A file in a tar archive.
struct TarMember {
  std::string name;
  // location of its content in the archive; for a link, of its target's content
  std::size_t offset = 0, size = 0;
  // Reason for missing content of a device, a sparse file, or a link out of the archive: "a link to
  // 'other.jpg', which is not in the archive". Empty for a readable member.
  std::string unreadable = {};
};

// Returns the files of an archive in order, without directories. Hard and symbolic links resolve to the
// members they point to. Supports the POSIX format with long names, links and sizes of GNU tar and of POSIX's
// extended headers. Concatenated archives are read as one. Throws DataError naming `path`, the offset and the
// expected content; also for a wrong checksum, an archive that ends inside a member, and trailing bytes.
std::vector<TarMember> parse_tar(std::span<const std::uint8_t> archive, const std::string& path);

}  // namespace rondo
