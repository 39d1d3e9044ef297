#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <optional>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/channel/store.h"
#include "rondo/env/identity.h"

namespace rondo {

// Where a rank runs.
struct Member {
  std::string host;            // equal for ranks that can share memory
  std::string host_name;       // for messages
  std::string launcher_store;  // equal for ranks that can open the same launcher's store; empty without one
};

// Names the boot of the machine, the process namespace and the network namespace of this process: ranks for
// which it is equal see each other's shared memory, whatever their hosts are called.
std::string host_identity();

// Environment variable with which a user says who shares a host, on all ranks or on none: ranks with the same
// text do. To try several hosts on one, or to keep ranks apart.
inline constexpr const char* kHostVariable = "RONDO_HOST";

// Takes this process's rank in the job, before anything else is written into its store. Throws UsageError
// naming both processes when another has it, and naming InitOptions::epoch when this one has it already.
class RankClaim {
 public:
  RankClaim(const env::Identity& identity, c10::intrusive_ptr<c10d::Store> store, std::int64_t epoch);
  RankClaim(const RankClaim&) = delete;
  RankClaim& operator=(const RankClaim&) = delete;
  // Gives the rank back unless it was kept, so that a process which could not join may try again.
  ~RankClaim();
  void keep() { kept_ = true; }

 private:
  std::string key_;
  c10::intrusive_ptr<c10d::Store> store_;
  bool kept_ = false;
};

// This process's place. `host` replaces host_identity() when it is not empty.
Member this_member(const env::Identity& identity, const std::string& host);

// Every rank's place, by rank: each writes its own into the store and reads the others'. Throws TimeoutError
// naming the ranks that did not come, UsageError when two processes claim one rank or ranks count the world
// differently.
std::vector<Member> exchange_members(const env::Identity& identity, const Member& own,
                                     const c10::intrusive_ptr<c10d::Store>& store, Duration timeout);

// Whether sums are added in the order of ranks. Environment variable behind InitOptions::deterministic: 1, or
// 0.
inline constexpr const char* kDeterministicVariable = "RONDO_DETERMINISTIC";

// Returns whether the environment asks for it; false without the variable. Throws UsageError for a value
// other than 0 and 1.
bool deterministic_by_environment();

// Returns what holds for a world: rank 0's wish, so that ranks cannot differ. Collective over the store.
bool agree_on_deterministic(bool wish, int rank, int world_size, Store& store, Duration timeout);

// The store through which the ranks of a job meet:
//   a world of one process         a store of its own
//   a worker of `rondo run`        the launcher's shared memory (one host: no port, no file)
//   file://                        c10d's FileStore at that path
//   env:// and tcp://              c10d's TCPStore; rank 0 listens at the address that all were told
//                                  (see network.h), unless torchrun's agent does
// Blocking until the store can be reached, and for TCPStore until rank 0 is in this rank's attempt of the
// job. Throws Error naming the address when it cannot, the port when it is taken, and the attempt when the
// job is in a later one.
c10::intrusive_ptr<c10d::Store> meet(const env::Identity& identity, const std::string& init_method,
                                     Duration timeout);

// The store of this host's launcher, for the ranks that it started; null without one.
c10::intrusive_ptr<c10d::Store> launcher_store();

// Tells this host's launcher how long ranks of other hosts wait for this one: the longest that any context of
// its ranks has said. Does nothing without a launcher, or where it has started all ranks.
void announce_patience(const env::Identity& identity, Duration patience);

// Tells this host's launcher whether this rank waits for others to join. Where ranks of this host end before
// they have joined, the launcher tells the other hosts. Does nothing where announce_patience() does not.
void announce_joining(const env::Identity& identity, bool joining);

// Tells this host's launcher why ranks of other hosts have ended the job, as this rank has been told.
void announce_told(const env::Identity& identity, const std::string& reason);

// Why the ranks of rank 0's host have ended, as that host's launcher says for some seconds where that was
// before all had joined. Blocks for up to 8 s. Empty on rank 0, without a launcher on several hosts, where
// the job may restart, and where nobody answers.
std::optional<std::string> launchers_notice(const env::Identity& identity);

// How long to wait for all ranks to appear: RONDO_JOIN_TIMEOUT (`rondo run --rdzv-conf join_timeout=...`),
// else `otherwise`.
Duration join_timeout(Duration otherwise);

}  // namespace rondo
