#pragma once

#include <string>

#include "rondo/backend/context.h"
#include "rondo/env/cluster.h"

namespace rondo {

// Position of a worker in a grouped job. Workers form groups of equal size in the order of TF_CONFIG.
struct GroupPlace {
  int worker = 0;         // index among all workers of the job
  int workers = 1;        // number of workers of the job
  int group = 0;          // index of the worker's group; servers treat each group as one worker
  int rank = 0;           // rank within the group
  int ranks = 1;          // number of ranks per group
  std::string meet = {};  // "host:port" of the group's first worker, where its ranks rendezvous
};

// Returns the position of this worker. Throws UsageError with both numbers if `groups` does not divide the
// number of workers.
GroupPlace find_group_place(const env::Cluster& cluster, int groups);

// Returns `options`, completed so that init() creates the context of this worker's group under any launcher:
// rank, size and rendezvous. Throws UsageError if this process is no worker in TF_CONFIG, or if `groups` does
// not divide the number of workers.
InitOptions init_options_of_group(int groups, InitOptions options = {});

}  // namespace rondo
