#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/shard.h"

namespace rondo {

// A directory of the shards that the ranks of a group hold. It moves shards: for each wanted shard, the
// overlaps with held shards. It does not depend on strategies. So holders and receivers may be any ranks in
// any number, and a rank may hold nothing of a tensor. An object is used by one thread.
class ShardDirectory {
 public:
  // `held` are this rank's shards; they must not change while the object lives. An empty group is this
  // process alone. Collective. Throws UsageError on all ranks, naming the shards, for an invalid shard
  // (fault_of) and for tensors of one name with different full shapes.
  ShardDirectory(std::vector<Shard> held, Group group);

  // Returns the names of all tensors, in the order of the ranks' lists, rank 0 first. The same on all ranks.
  const std::vector<std::string>& names() const { return names_; }
  // Returns the address of some shard of a tensor. Throws UsageError for a name that no rank has.
  const Shard& sample(const std::string& name) const { return entry(name).address; }
  // Returns the dtype of a tensor. Throws as sample().
  at::ScalarType dtype(const std::string& name) const { return entry(name).dtype; }

  // Returns addresses of shards with elements that only `ranks` hold, each once. The same on all ranks.
  std::vector<Shard> held_only_by(const std::vector<int>& ranks) const;

  // Returns the indices in `held` of the shards that this rank writes, so that all ranks together write every
  // address once. Among ranks that hold the same shard, the one with the fewest bytes so far writes it.
  std::vector<std::size_t> to_write() const;

  // Copies values into `local` of every wanted shard: from this rank's shards if they have them, otherwise
  // from the copies with the lowest `replica`. Converts values to the dtype of `local`. Every rank passes its
  // own list, which may be empty. Collective. On an error nothing changes, and the result has one phrase for
  // each fault, the same on all ranks: elements that no rank holds and, with `exact`, tensors that no rank
  // wants.
  std::vector<std::string> fetch(std::span<Shard> wanted, bool exact = false) const;

  // Returns the full tensor on rank `root` and an undefined one elsewhere; without `root` on every rank.
  // Returns the rank's own tensor if it holds all of it. Collective. Throws UsageError on all ranks for
  // elements that no rank holds, and for an unknown name.
  at::Tensor full(const std::string& name, std::optional<int> root = {}) const;

 private:
  // A shard of a rank: its address without values.
  struct Entry {
    Shard address;
    at::ScalarType dtype = at::kFloat;
    int rank = 0;
    std::size_t number = 0;  // index in the rank's list
    std::size_t tensor = 0;  // index in names_
  };
  // One box to move from a held shard to a wanted one.
  struct Transfer {
    const Entry* from;
    int to;              // receiving rank
    std::size_t wanted;  // index in the receiving rank's list
    Box box;
    std::int64_t bytes() const;
  };
  struct Transfers {
    std::vector<Transfer> all;
    std::vector<std::string> missing;
  };

  const Entry& entry(const std::string& name) const;
  void find_transfers(const Shard& wanted, int rank, std::size_t number, Transfers& transfers) const;
  void move(const std::vector<Transfer>& transfers, std::span<Shard> wanted) const;
  void move_round(std::span<const Transfer> round, std::span<Shard> wanted) const;
  int size() const { return group_.member() ? group_.size() : 1; }
  int rank() const { return group_.member() ? group_.rank() : 0; }

  std::vector<Shard> held_;
  Group group_;
  std::vector<std::string> names_;
  std::map<std::string, std::vector<Entry>> entries_;  // by name, lowest replica first
};

}  // namespace rondo
