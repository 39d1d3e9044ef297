#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/format/checksum.h"
#include "rondo/train/memory_checkpoint_hosts.h"

namespace rondo {

// Sends every rank's files to the next host, in pieces of 8 MiB, and writes files from the previous host into
// `directory`, which also has this host's own files. `files` are all ranks' files, by rank. Returns the
// reason if this rank could not read or write, otherwise an empty text. Collective; throws communication
// errors.
std::string copy_to_neighbour(const Group& group, const MemoryCheckpointHosts& hosts,
                              const std::filesystem::path& directory,
                              const std::vector<std::vector<FileRecord>>& files);

// Sends one file of `bytes` bytes from the rank `source` to all ranks; those with a `target` write it there.
// Returns as copy_to_neighbour() does. Collective.
std::string broadcast_file(const Group& group, int source, const std::filesystem::path& file,
                           std::uint64_t bytes, const std::filesystem::path& target);

}  // namespace rondo
