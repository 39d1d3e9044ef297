#include "rondo/parallel/grouped/group_place.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/server/served_job.h"

namespace rondo {

GroupPlace find_group_place(const env::Cluster& cluster, int groups) {
  const auto workers = static_cast<int>(cluster.workers.size());
  if (groups < 1 || workers % groups != 0)
    throw UsageError(str("--ps-groups ", groups, " does not divide the ", workers, " workers of the job"));
  GroupPlace place{.worker = cluster.index, .workers = workers};
  place.ranks = workers / groups;
  place.group = cluster.index / place.ranks;
  place.rank = cluster.index % place.ranks;
  place.meet = cluster.workers[static_cast<std::size_t>(place.group * place.ranks)];
  return place;
}

InitOptions init_options_of_group(int groups, InitOptions options) {
  const GroupPlace place =
      find_group_place(read_worker_cluster("grouped", env::process_environment()), groups);
  options.init_method = str("apart:tcp://", place.meet);
  options.rank = place.rank;
  options.world_size = place.ranks;
  return options;
}

}  // namespace rondo
