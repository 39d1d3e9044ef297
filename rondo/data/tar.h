#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// A file within a tar archive.
struct TarMember {
  std::string name;
  std::size_t offset = 0, size = 0;  // of its content, in the archive
};

// The files of an archive in their order; directories and links are passed over. POSIX's form, with long
// names as GNU tar and as POSIX's extended headers have them. Throws DataError naming `path`, the offset and
// what was expected there: also for a wrong checksum, and for an archive that ends within a member.
std::vector<TarMember> parse_tar(std::span<const std::uint8_t> archive, const std::string& path);

}  // namespace rondo
