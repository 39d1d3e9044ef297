// Links within a host are fast, links between hosts slow: reduces within the hosts first, exchanges sums
// between hosts, and broadcasts within the hosts. Every rank of a host takes part in the exchange, with its
// share of the data, so that each byte crosses between two hosts once in each direction. Hosts may have
// different numbers of ranks, in any order. Thakur, Rabenseifner and Gropp, 2005, describe the single-level
// exchanges; the two levels are those of Horovod and NCCL (hierarchical all-reduce).
#include <algorithm>
#include <map>

#include "rondo/collective/algorithms/phases.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

// A map from ranks to hosts. A rank's rail is its index on its host, modulo the size of the smallest host: so
// every host has a rank on every rail, the holder, which exchanges the rail's data.
class Hosts {
 public:
  explicit Hosts(const ScheduleRequest& request) {
    std::map<int, int> number_of;
    for (int rank = 0; rank < request.world; ++rank) {
      const int label = request.hosts.empty() ? 0 : request.hosts[static_cast<std::size_t>(rank)];
      const auto [found, is_new] = number_of.emplace(label, static_cast<int>(members_.size()));
      if (is_new) members_.emplace_back();
      host_.push_back(found->second);
      index_.push_back(static_cast<int>(members_[static_cast<std::size_t>(found->second)].size()));
      members_[static_cast<std::size_t>(found->second)].push_back(rank);
    }
    rails_ = request.world;
    for (const auto& ranks : members_) {
      rails_ = std::min(rails_, static_cast<int>(ranks.size()));
      largest_ = std::max(largest_, static_cast<int>(ranks.size()));
    }
  }
  int count() const { return static_cast<int>(members_.size()); }
  int host(int rank) const { return host_[static_cast<std::size_t>(rank)]; }
  int rail(int rank) const { return index_[static_cast<std::size_t>(rank)] % rails_; }
  bool is_holder(int rank) const { return index_[static_cast<std::size_t>(rank)] < rails_; }
  // Ranks of a host, ascending.
  const std::vector<int>& members(int host) const { return members_[static_cast<std::size_t>(host)]; }
  int holder(int host, int rail) const { return members(host)[static_cast<std::size_t>(rail)]; }
  // Returns the holder of a rank's part on a host.
  int holder_of_part(int host, int rank) const { return holder(host, rail(rank)); }

  // Rounds of the three phases: within hosts, between hosts, to ranks that hold nothing.
  int inside_rounds() const { return largest_ > 1 ? 1 : 0; }
  int between_rounds() const { return count() > 1 ? 1 : 0; }
  int hand_over_rounds() const { return largest_ > rails_ ? 1 : 0; }

 private:
  std::vector<int> host_;
  std::vector<int> index_;  // index of a rank on its host
  std::vector<std::vector<int>> members_;
  int rails_ = 1;
  int largest_ = 1;
};

// Sums `range` over the messages of `givers` to this rank, itself included, in the order of ranks.
void collect(ScheduleBuilder& builder, int round, const std::vector<int>& givers, const Range& range) {
  if (givers.size() < 2 || range.bytes == 0) return;
  Ranges sources;
  for (const int rank : givers) {
    sources.push_back(rank == builder.rank() ? range : builder.scratch(range.bytes));
    if (rank != builder.rank()) builder.recv(round, rank, sources.back());
  }
  builder.reduce(round, range, std::move(sources));
}

int hosts_reduce_scatter(ScheduleBuilder& builder, int round, const Hosts& hosts) {
  const int me = builder.rank();
  const int my_host = hosts.host(me);
  const auto part = [&](int rank) { return part_of(builder.request(), rank); };
  const int inside = round;
  const int between = inside + hosts.inside_rounds();
  const int hand_over = between + hosts.between_rounds();
  for (int owner = 0; owner < builder.world(); ++owner) {
    const int holder = hosts.holder_of_part(my_host, owner);
    const int last_holder = hosts.holder_of_part(hosts.host(owner), owner);
    if (holder == me) {
      collect(builder, inside, hosts.members(my_host), part(owner));
    } else {
      builder.send(inside, holder, part(owner));
    }
    if (holder == me && last_holder != me) builder.send(between, last_holder, part(owner));
    if (last_holder == me) {
      std::vector<int> holders;
      for (int host = 0; host < hosts.count(); ++host) holders.push_back(hosts.holder_of_part(host, owner));
      std::sort(holders.begin(), holders.end());
      collect(builder, between, holders, part(owner));
      if (owner != me) builder.send(hand_over, owner, part(owner));
    }
    if (owner == me && last_holder != me) builder.recv(hand_over, last_holder, part(owner));
  }
  return hand_over + hosts.hand_over_rounds();
}

// Gathers in the reverse direction of hosts_reduce_scatter().
int hosts_all_gather(ScheduleBuilder& builder, int round, const Hosts& hosts) {
  const int me = builder.rank();
  const int my_host = hosts.host(me);
  const auto part = [&](int rank) { return part_of(builder.request(), rank); };
  const int hand_over = round;
  const int between = hand_over + hosts.hand_over_rounds();
  const int inside = between + hosts.between_rounds();
  for (int owner = 0; owner < builder.world(); ++owner) {
    const int holder = hosts.holder_of_part(my_host, owner);
    const int first_holder = hosts.holder_of_part(hosts.host(owner), owner);
    if (owner == me && first_holder != me) builder.send(hand_over, first_holder, part(owner));
    if (first_holder == me) {
      if (owner != me) builder.recv(hand_over, owner, part(owner));
      for (int host = 0; host < hosts.count(); ++host) {
        const int other = hosts.holder_of_part(host, owner);
        if (other != me) builder.send(between, other, part(owner));
      }
    }
    if (holder == me && first_holder != me) builder.recv(between, first_holder, part(owner));
    if (holder == me) {
      for (const int member : hosts.members(my_host)) {
        if (member != me && member != owner) builder.send(inside, member, part(owner));
      }
    } else if (owner != me) {
      builder.recv(inside, holder, part(owner));
    }
  }
  return inside + hosts.inside_rounds();
}

// Returns the rank that represents a host in broadcast and reduce: the root on its own host, else the first
// one.
int leader(const Hosts& hosts, int host, int root) {
  return hosts.host(root) == host ? root : hosts.members(host).front();
}

int broadcast(ScheduleBuilder& builder, const Hosts& hosts) {
  const int me = builder.rank();
  const int root = builder.request().root;
  const int inside = hosts.between_rounds();
  const int my_leader = leader(hosts, hosts.host(me), root);
  if (me == root) {
    for (int host = 0; host < hosts.count(); ++host) {
      if (leader(hosts, host, root) != root) builder.send(0, leader(hosts, host, root), builder.data());
    }
  } else if (me == my_leader) {
    builder.recv(0, root, builder.data());
  }
  if (me != my_leader) builder.recv(inside, my_leader, builder.data());
  for (const int member : hosts.members(hosts.host(me))) {
    if (me == my_leader && member != me) builder.send(inside, member, builder.data());
  }
  return inside + hosts.inside_rounds();
}

int reduce(ScheduleBuilder& builder, const Hosts& hosts) {
  const int me = builder.rank();
  const int root = builder.request().root;
  const int between = hosts.inside_rounds();
  const int my_leader = leader(hosts, hosts.host(me), root);
  if (me != my_leader) {
    builder.send(0, my_leader, builder.data());
  } else {
    collect(builder, 0, hosts.members(hosts.host(me)), builder.data());
    if (me != root) builder.send(between, root, builder.data());
  }
  if (me == root) {
    std::vector<int> leaders;
    for (int host = 0; host < hosts.count(); ++host) leaders.push_back(leader(hosts, host, root));
    std::sort(leaders.begin(), leaders.end());
    collect(builder, between, leaders, builder.data());
  }
  return between + hosts.between_rounds();
}

Schedule schedule_hierarchical(const ScheduleRequest& request) {
  ScheduleBuilder builder(request, "hierarchical");
  const Hosts hosts(request);
  switch (request.operation) {
    case OperationKind::all_reduce:
      return builder.finish(hosts_all_gather(builder, hosts_reduce_scatter(builder, 0, hosts), hosts));
    case OperationKind::reduce_scatter:
      return builder.finish(hosts_reduce_scatter(builder, 0, hosts));
    case OperationKind::all_gather:
      return builder.finish(hosts_all_gather(builder, 0, hosts));
    case OperationKind::broadcast:
      return builder.finish(broadcast(builder, hosts));
    default:
      return builder.finish(reduce(builder, hosts));
  }
}

Cost rooted_cost(const ScheduleRequest& request, const Hosts& hosts) {
  const std::uint64_t all = request.bytes.count;
  const bool is_root = request.rank == request.root;
  const int host = hosts.host(request.rank);
  const bool leads = leader(hosts, host, request.root) == request.rank;
  const std::uint64_t members = leads ? hosts.members(host).size() - 1 : 0;
  const std::uint64_t other_hosts = is_root ? static_cast<std::uint64_t>(hosts.count()) - 1 : 0;
  const std::uint64_t outward = (members + other_hosts) * all;
  const std::uint64_t inward = is_root ? 0 : all;
  const int rounds = hosts.inside_rounds() + hosts.between_rounds();
  if (request.operation == OperationKind::broadcast) return {rounds, outward, inward, 0};
  return {rounds, inward, outward, outward};
}

Cost cost_of_hierarchical(const ScheduleRequest& request) {
  const Hosts hosts(request);
  if (request.operation == OperationKind::broadcast || request.operation == OperationKind::reduce) {
    return rooted_cost(request, hosts);
  }
  const int me = request.rank;
  const int host = hosts.host(me);
  const bool holds = hosts.is_holder(me);
  const std::uint64_t part = request.bytes.count / static_cast<std::uint64_t>(request.world);
  const auto world = static_cast<std::uint64_t>(request.world);
  const std::uint64_t local = hosts.members(host).size();
  const auto other_hosts = static_cast<std::uint64_t>(hosts.count()) - 1;
  // Parts on this holder's rail: in the world, and of ranks of its host.
  std::uint64_t on_rail = 0;
  std::uint64_t here = 0;
  for (int rank = 0; rank < request.world; ++rank) {
    if (!holds || hosts.rail(rank) != hosts.rail(me)) continue;
    ++on_rail;
    if (hosts.host(rank) == host) ++here;
  }
  const std::uint64_t handed_over = holds ? here - 1 : 0;
  const std::uint64_t own_handed_over = holds ? 0 : 1;
  const std::uint64_t reduce_sent = (world - on_rail) + (on_rail - here) + handed_over;
  const std::uint64_t reduce_received = (local - 1) * on_rail + other_hosts * here + own_handed_over;
  // In the gather a part is not sent to the rank that it came from.
  const std::uint64_t gather_sent =
      own_handed_over + other_hosts * here + (local - 1) * on_rail - handed_over;
  const std::uint64_t gather_received = handed_over + (on_rail - here) + (world - on_rail) - own_handed_over;
  const std::uint64_t scratch = ((local - 1) * on_rail + other_hosts * here) * part;
  const int rounds = hosts.inside_rounds() + hosts.between_rounds() + hosts.hand_over_rounds();
  switch (request.operation) {
    case OperationKind::all_reduce:
      return {2 * rounds, (reduce_sent + gather_sent) * part, (reduce_received + gather_received) * part,
              scratch};
    case OperationKind::reduce_scatter:
      return {rounds, reduce_sent * part, reduce_received * part, scratch};
    default:
      return {rounds, gather_sent * part, gather_received * part, 0};
  }
}

}  // namespace

Algorithm hierarchical() {
  return {"hierarchical",
          "add inside the hosts, exchange between hosts, spread inside",
          {OperationKind::all_reduce, OperationKind::reduce_scatter, OperationKind::all_gather,
           OperationKind::broadcast, OperationKind::reduce},
          schedule_hierarchical,
          cost_of_hierarchical};
}

}  // namespace rondo::collective
