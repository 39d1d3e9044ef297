#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/format/checksum.h"
#include "rondo/train/replica_hosts.h"

namespace rondo {

// Sends every rank's files to the next host, in pieces of 8 MiB, and writes what comes from the host before
// into `directory`, where this host's own files are. `files` are all ranks', by rank. Returns why this rank
// could not read or write something, empty where it could. Collective; errors of communication are thrown.
std::string copy_to_neighbour(const Group& group, const ReplicaHosts& hosts,
                              const std::filesystem::path& directory,
                              const std::vector<std::vector<FileRecord>>& files);

// Sends one file of `bytes` bytes from the rank `source` to all ranks; those with a `target` write it there.
// Returns what copy_to_neighbour() does. Collective.
std::string broadcast_file(const Group& group, int source, const std::filesystem::path& file,
                           std::uint64_t bytes, const std::filesystem::path& target);

}  // namespace rondo
