#pragma once

#include <string>
#include <vector>

namespace rondo::hierarchical {

// Which ranks of a group share a host. Ranks may be numbered in any order over hosts, and hosts may have
// different numbers of them.
class HostMap {
 public:
  // `hosts` has one entry a rank, equal for ranks of one host.
  HostMap(const std::vector<std::string>& hosts, int rank);

  int host_count() const { return static_cast<int>(members_.size()); }
  // Group ranks on a host, ascending. Hosts are numbered by their lowest rank.
  const std::vector<int>& members(int host) const { return members_[static_cast<std::size_t>(host)]; }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  // Position among the members of the rank's host.
  int local_rank_of(int rank) const { return local_rank_of_[static_cast<std::size_t>(rank)]; }

  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(host_of_.size()); }
  int host() const { return host_of(rank_); }
  int local_rank() const { return local_rank_of(rank_); }
  int host_size(int host) const { return static_cast<int>(members(host).size()); }
  int host_size() const { return host_size(host()); }
  // Ranks of the smallest host.
  int smallest_host() const;
  // Whether all hosts have equally many ranks.
  bool even() const;
  // The rank of `host` that deals with a rank with `local_rank` on another host: the one of the same local
  // rank, wrapped around.
  int counterpart(int host, int local_rank) const {
    return members(host)[static_cast<std::size_t>(local_rank % host_size(host))];
  }
  // Whether this rank deals with `rank` of another host, or that one with this.
  bool deals_with(int rank) const {
    return host_of(rank) != host() && (counterpart(host_of(rank), local_rank()) == rank ||
                                       counterpart(host(), local_rank_of(rank)) == rank_);
  }

 private:
  int rank_;
  std::vector<std::vector<int>> members_;
  std::vector<int> host_of_;
  std::vector<int> local_rank_of_;
};

}  // namespace rondo::hierarchical
