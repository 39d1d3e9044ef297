#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// A file within a tar archive.
struct TarMember {
  std::string name;
  std::size_t offset = 0, size = 0;  // of its content, in the archive; of a link, of what it leads to
  // Why there is no content, of a device, a sparse file, or a link that leads out of the archive: "a link to
  // 'other.jpg', which is not in the archive". Empty for a member that can be read.
  std::string unreadable = {};
};

// Returns the files of an archive in their order; only directories are passed over. Hard and symbolic links
// stand for the members that they lead to. POSIX's form, with long names, links and sizes as GNU tar and as
// POSIX's extended headers have them; archives that were joined are read as one. Throws DataError naming
// `path`, the offset and what was expected there: also for a wrong checksum, for an archive that ends within
// a member, and for other bytes behind its end.
std::vector<TarMember> parse_tar(std::span<const std::uint8_t> archive, const std::string& path);

}  // namespace rondo
