#pragma once

#include <string>
#include <vector>

#include "rondo/env/environment.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// The parts that a job of roles on one host needs besides workers: a secret, an address for each task, and
// each parameter server's memory, which the launcher holds so that it outlives the server. Of one attempt.
class ServerJob {
 public:
  // Tasks `workers` of role worker, the first of which is the chief, then `servers` of role ps; one behind
  // them is the evaluator. Throws Error.
  ServerJob(int workers, int servers);

  // What task `rank` finds in its environment besides: TF_CONFIG, RONDO_SECRET_FILE and RONDO_SERVER_MEMORY.
  // A secret that the user has given stays.
  void describe(int rank, env::EnvironmentMap& environment) const;

 private:
  int workers_;
  std::vector<std::string> addresses_;
  Descriptor secret_;
  std::vector<Descriptor> memories_;
};

}  // namespace rondo::launch
