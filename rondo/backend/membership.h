#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
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

}  // namespace rondo
