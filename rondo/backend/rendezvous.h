#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <optional>
#include <string>

#include "rondo/base/time.h"
#include "rondo/env/identity.h"

namespace rondo {

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
