#pragma once

#include <string>
#include <vector>

#include "rondo/env/environment.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// Creates an unnamed file in memory that only this user can open. It exists until the last process closes it.
// Throws Error.
Descriptor make_memory_file(const std::string& name);

// Returns the path under which child processes can open such a file.
std::string path_of(const Descriptor& file);

// The launcher's side of env::EndedWorkers: an unnamed file with one byte per worker process, for one
// attempt.
class EndedWorkersFile {
 public:
  // Throws Error if the file cannot be created.
  explicit EndedWorkersFile(int workers);
  // Returns the value of env::kEndedWorkersVariable.
  std::string path() const;
  // Records that worker process `worker` has exited and will not be restarted. Ignores processes that are not
  // workers.
  void note(int worker) const;

 private:
  int workers_;
  Descriptor file_;
};

// Resources of a single-host job with roles, for one attempt: a secret, an address for each task, and each
// parameter server's memory. The launcher holds the memory so that it outlives the server.
class ServerJob {
 public:
  // Creates tasks for `workers` workers (the first one is the chief), then `servers` parameter servers; the
  // rank after them is the evaluator. Throws Error.
  ServerJob(int workers, int servers);

  // Adds the variables of task `rank`: TF_CONFIG, RONDO_SECRET_FILE and RONDO_SERVER_MEMORY. Keeps a secret
  // that the user has set.
  void describe(int rank, env::EnvironmentMap& environment) const;

 private:
  int workers_;
  std::vector<std::string> addresses_;
  Descriptor secret_;
  std::vector<Descriptor> memories_;
};

}  // namespace rondo::launch
