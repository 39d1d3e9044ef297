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

// Which rank of a group holds which shards, and how they move: for each wanted shard the overlaps with those
// that there are. It knows nothing of strategies, so the ranks that hold and those that want may be others,
// in any number, and a rank may hold nothing of a tensor. One thread uses an object.
class ShardDirectory {
 public:
  // `held` is what this rank gives, and stays as it is while the object lives. An empty handle of a group is
  // this process alone. Collective. Throws UsageError on all ranks, naming the shards, for one that cannot be
  // (fault_of) and for tensors of one name whose full shapes differ.
  ShardDirectory(std::vector<Shard> held, Group group);

  // Of all tensors, in the order in which the ranks name them, rank 0 first. The same on all ranks.
  const std::vector<std::string>& names() const { return names_; }
  // Address and dtype of some shard of it. Throws UsageError for a name that no rank has.
  const Shard& sample(const std::string& name) const { return entry(name).address; }
  at::ScalarType dtype(const std::string& name) const { return entry(name).dtype; }  // likewise

  // Addresses of the shards of which only `ranks` hold some elements, each once. The same on all ranks.
  std::vector<Shard> held_only_by(const std::vector<int>& ranks) const;

  // Numbers, in the list given, of the shards that this rank writes so that all ranks together write every
  // address once: of ranks that hold the same one it is the one with the fewest bytes so far.
  std::vector<std::size_t> to_write() const;

  // Copies into every wanted shard's `local` what it is the address of, of the own shards where they have it,
  // else of the copies with the lowest `replica`. Values are converted to the dtype of `local`. Every rank
  // gives its own list, perhaps an empty one. Collective. Where something does not fit nothing is changed,
  // and the result has one phrase for each such thing, the same on all ranks: elements that no rank holds,
  // and with `exact` tensors that no rank wants.
  std::vector<std::string> fetch(std::span<Shard> wanted, bool exact = false) const;

  // The full tensor on rank `root`, an undefined one elsewhere; without `root` on every rank. It is the
  // rank's own where all of it is there. Collective. Throws UsageError on all ranks for elements that no rank
  // holds, and for a name as sample() does.
  at::Tensor full(const std::string& name, std::optional<int> root = {}) const;

 private:
  // A shard of a rank: its address, without the values.
  struct Entry {
    Shard address;
    at::ScalarType dtype = at::kFloat;
    int rank = 0;
    std::size_t number = 0;  // in the rank's list
    std::size_t tensor = 0;  // in names_
  };
  // One box on its way from a held shard to a wanted one.
  struct Transfer {
    const Entry* from;
    int to;              // rank
    std::size_t wanted;  // number in that rank's list
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
