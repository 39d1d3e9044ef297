#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "rondo/base/time.h"
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

// This process's place. `host` replaces host_identity() when it is not empty.
Member this_member(const env::Identity& identity, const std::string& host);

// Every rank's place, by rank: each writes its own into the store and reads the others'. Throws TimeoutError
// naming the ranks that did not come, UsageError when two processes claim one rank or ranks count the world
// differently.
std::vector<Member> exchange_members(const env::Identity& identity, const Member& own,
                                     const c10::intrusive_ptr<c10d::Store>& store, Duration timeout);

}  // namespace rondo
