#pragma once

#include <string>
#include <vector>

#include "rondo/env/environment.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// A file in memory that only this user opens, without a name in any folder; it ends with the last process
// that has it open. Throws Error.
Descriptor make_memory_file(const std::string& name);

// The path by which this process's children open such a file.
std::string path_of(const Descriptor& file);

// The launcher's side of env::EndedWorkers: a file without a name with a byte for each worker process. Of one
// attempt.
class EndedWorkersFile {
 public:
  // Throws Error when no file can be made.
  explicit EndedWorkersFile(int workers);
  // For env::kEndedWorkersVariable.
  std::string path() const;
  // Notes that worker process `worker` has ended for good. Others than workers are not noted.
  void note(int worker) const;

 private:
  int workers_;
  Descriptor file_;
};

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
