#pragma once

#include <filesystem>
#include <vector>

#include "rondo/backend/context.h"

namespace rondo {

// The ranks of a job, grouped by shared memory.
class MemoryCheckpointHosts {
 public:
  // Ranks for which `root` is the same directory share a host. Creates a missing directory. Collective.
  // Throws AgreedError if that fails.
  MemoryCheckpointHosts(const Context& context, const std::filesystem::path& root);

  int count() const { return static_cast<int>(ranks_.size()); }
  int own() const { return host_of(rank_); }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  // Returns the ranks of a host, ascending. The first one is the leader: it creates and completes the host's
  // checkpoints.
  const std::vector<int>& ranks(int host) const { return ranks_[static_cast<std::size_t>(host)]; }
  int leader(int host) const { return ranks(host).front(); }
  bool leads() const { return leader(own()) == rank_; }
  // Returns the host whose files `host` also stores; itself with one host.
  int host_before(int host) const { return (host + count() - 1) % count(); }
  // Returns the rank of the next host to which `rank` sends its files.
  int partner(int rank) const;

 private:
  int rank_;
  std::vector<int> host_of_;             // by rank; numbered by their first ranks
  std::vector<std::vector<int>> ranks_;  // by host
};

}  // namespace rondo
