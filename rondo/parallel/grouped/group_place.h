#pragma once

#include <string>

#include "rondo/backend/context.h"
#include "rondo/env/cluster.h"

namespace rondo {

// Where a worker of a grouped job stands: workers in the order of TF_CONFIG form groups of equal size.
struct GroupPlace {
  int worker = 0;         // of all of the job
  int workers = 1;        // of the job
  int group = 0;          // its group, which is one worker of the servers
  int rank = 0;           // within the group
  int ranks = 1;          // of a group
  std::string meet = {};  // "host:port": the address of the group's first worker, where its ranks meet
};

// Throws UsageError naming both numbers when `groups` do not divide the workers.
GroupPlace find_group_place(const env::Cluster& cluster, int groups);

// `options` completed so that init() gives the context of this worker's group, whatever launcher started it:
// its rank, its size, and where it meets. Throws UsageError when TF_CONFIG makes this process no worker, or
// groups do not divide the workers.
InitOptions init_options_of_group(int groups, InitOptions options = {});

}  // namespace rondo
