#pragma once

#include <cstddef>
#include <string>

namespace rondo::env {

// Environment variable with a directory in this host's memory that outlives the job's ranks: the launcher
// makes it for a job that it may start again, and removes it when the job ends. Not set: there is none.
inline constexpr const char* kJobMemoryVariable = "RONDO_JOB_MEMORY";

// Environment variable of servers and evaluators: a file, as /proc/<pid>/fd/<n>, with a byte for each worker
// process of the job. The launcher sets the byte of a process that has ended for good to 1. Not set: nobody
// tells.
inline constexpr const char* kEndedWorkersVariable = "RONDO_ENDED_WORKERS";

// The worker processes that have ended for good, as the launcher knows them: one that ends before it has
// joined is missed by nobody else. Any thread.
class EndedWorkers {
 public:
  // Opens the file; with an empty path no process is known to have ended. Throws Error naming the path.
  explicit EndedWorkers(const std::string& path);
  EndedWorkers(const EndedWorkers&) = delete;
  EndedWorkers& operator=(const EndedWorkers&) = delete;
  ~EndedWorkers();

  // Whether one of the processes from `first` to `first + count - 1` has ended.
  bool any_of(std::size_t first, std::size_t count) const;
  // Whether there are worker processes and all have ended.
  bool all() const;

 private:
  std::string read(std::size_t first, std::size_t count) const;

  int descriptor_ = -1;
};

// Environment variable with the path of a file that a worker creates when it ends because it was pre-empted,
// with its state saved. Without the file, exit code 3 is one like others to the launcher. Not set: nobody
// looks.
inline constexpr const char* kPreemptionFileVariable = "RONDO_PREEMPTION_FILE";

// Creates that file, where the environment names one. Any thread.
void note_preemption() noexcept;

}  // namespace rondo::env
