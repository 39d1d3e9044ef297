#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <optional>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/channel/store.h"
#include "rondo/env/identity.h"

namespace rondo {

// The host of a rank.
struct Member {
  std::string host;            // equal for ranks that can share memory
  std::string host_name;       // for messages
  std::string launcher_store;  // equal for ranks that can open the same launcher's store; empty without one
};

// Returns an identifier of the machine's boot, the process namespace and the network namespace of this
// process. Ranks with equal identifiers can share memory, even if their host names differ.
std::string host_identity();

// Environment variable that sets this rank's host, on all ranks or on none: ranks with the same text share a
// host. Use it to simulate several hosts on one, or to keep ranks apart.
inline constexpr const char* kHostVariable = "RONDO_HOST";

// A claim of this process's rank in the job, made before anything else is written into the job's store.
// Throws UsageError naming both processes if another has the rank, and naming InitOptions::epoch if this
// process has it already.
class RankClaim {
 public:
  RankClaim(const env::Identity& identity, c10::intrusive_ptr<c10d::Store> store, std::int64_t epoch);
  RankClaim(const RankClaim&) = delete;
  RankClaim& operator=(const RankClaim&) = delete;
  // Releases the rank unless it was kept, so that a process which could not join may try again.
  ~RankClaim();
  void keep() { kept_ = true; }

 private:
  std::string key_;
  c10::intrusive_ptr<c10d::Store> store_;
  bool kept_ = false;
};

// Returns this process's host. `host` replaces host_identity() unless it is empty.
Member this_member(const env::Identity& identity, const std::string& host);

// Exchanges the ranks' hosts through the store and returns them by rank. Throws TimeoutError naming the ranks
// that did not arrive, and UsageError if two processes claim one rank or ranks have different world sizes.
std::vector<Member> exchange_members(const env::Identity& identity, const Member& own,
                                     const c10::intrusive_ptr<c10d::Store>& store, Duration timeout);

// Environment variable behind InitOptions::deterministic: 1 to add sums in the order of ranks, or 0.
inline constexpr const char* kDeterministicVariable = "RONDO_DETERMINISTIC";

// Returns whether the environment variable requests it; false without the variable. Throws UsageError for a
// value other than 0 and 1.
bool deterministic_by_environment();

// Broadcasts rank 0's `wish` and returns it, so that all ranks agree. Collective over the store.
bool agree_on_deterministic(bool wish, int rank, int world_size, Store& store, Duration timeout);

// Returns the store through which the ranks of a job meet:
//   a world of one process         a store of its own
//   a worker of `rondo run`        the launcher's shared memory (one host: no port, no file)
//   file://                        c10d's FileStore at that path
//   env:// and tcp://              c10d's TCPStore; rank 0 listens at the address that all ranks have
//                                  (see network.h), unless torchrun's agent does
// Blocks until the store can be reached, and for TCPStore until rank 0 is in this rank's attempt of the job.
// Throws Error naming the address if it cannot be reached, the port if it is taken, and the attempt if the
// job is in a later one.
c10::intrusive_ptr<c10d::Store> meet(const env::Identity& identity, const std::string& init_method,
                                     Duration timeout);

// Returns the store of this host's launcher, for the ranks that it started; null without one.
c10::intrusive_ptr<c10d::Store> launcher_store();

// Tells this host's launcher how long ranks of other hosts wait for this one: the longest time of all
// contexts of its ranks. Does nothing without a launcher, or if it has started all ranks.
void announce_patience(const env::Identity& identity, Duration patience);

// Tells this host's launcher whether this rank waits for others to join. If ranks of this host end before
// they have joined, the launcher notifies the other hosts. Does nothing in the cases of announce_patience().
void announce_joining(const env::Identity& identity, bool joining);

// Passes on to this host's launcher the reason why ranks of other hosts have ended the job.
void relay_end_notice(const env::Identity& identity, const std::string& reason);

// Returns the reason why the ranks of rank 0's host have ended before all ranks had joined; that host's
// launcher serves it for some seconds. Blocks for up to 8 s. Returns nullopt on rank 0, without a launcher on
// several hosts, if the job may restart, and if there is no answer.
std::optional<std::string> launchers_notice(const env::Identity& identity);

// Returns the time to wait for all ranks to join: RONDO_JOIN_TIMEOUT (`rondo run --rdzv-conf
// join_timeout=...`), else `otherwise`.
Duration join_timeout(Duration otherwise);

}  // namespace rondo
