#pragma once

#include <filesystem>
#include <vector>

#include "rondo/backend/context.h"

namespace rondo {

// The ranks of a job by the memory that they share.
class ReplicaHosts {
 public:
  // Ranks for which `root` is one directory share a host; it is made where it is missing. Collective. Throws
  // AgreedError when it cannot be.
  ReplicaHosts(const Context& context, const std::filesystem::path& root);

  int count() const { return static_cast<int>(ranks_.size()); }
  int own() const { return host_of(rank_); }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  // Ascending; the first one leads: it makes and completes the host's checkpoints.
  const std::vector<int>& ranks(int host) const { return ranks_[static_cast<std::size_t>(host)]; }
  int leader(int host) const { return ranks(host).front(); }
  bool leads() const { return leader(own()) == rank_; }
  // Whose files are also here; its own with one host.
  int host_before(int host) const { return (host + count() - 1) % count(); }
  // To which rank of the next host `rank` sends what it has written.
  int partner(int rank) const;

 private:
  int rank_;
  std::vector<int> host_of_;             // by rank; numbered by their first ranks
  std::vector<std::vector<int>> ranks_;  // by host
};

}  // namespace rondo
