#pragma once

#include <cstddef>
#include <string>

namespace rondo::env {

// Environment variable with a directory in this host's memory that outlives the job's ranks. The launcher
// creates it for a job that it may restart, and removes it when the job ends. Unset: no such directory.
inline constexpr const char* kJobMemoryVariable = "RONDO_JOB_MEMORY";

// Environment variable of servers and evaluators: a file, as /proc/<pid>/fd/<n>, with one byte for each
// worker process of the job. The launcher sets the byte to 1 when the process has exited and will not be
// restarted. Unset: unknown.
inline constexpr const char* kEndedWorkersVariable = "RONDO_ENDED_WORKERS";

// The worker processes that have exited and will not be restarted, as reported by the launcher. Detects a
// worker that exits before it has joined, which no peer would notice. Thread-safe.
class EndedWorkers {
 public:
  // Opens the file. With an empty path, no process counts as exited. Throws Error naming the path.
  explicit EndedWorkers(const std::string& path);
  EndedWorkers(const EndedWorkers&) = delete;
  EndedWorkers& operator=(const EndedWorkers&) = delete;
  ~EndedWorkers();

  // Returns whether any of the processes `first` to `first + count - 1` has exited.
  bool any_of(std::size_t first, std::size_t count) const;
  // Returns whether there are worker processes and all have exited.
  bool all() const;

 private:
  std::string read(std::size_t first, std::size_t count) const;

  int descriptor_ = -1;
};

// Environment variable with the path of a file that a worker creates when it exits after a pre-emption with
// its state saved. Without the file, the launcher treats exit code 3 like any other. Unset: no launcher
// checks the file.
inline constexpr const char* kPreemptionFileVariable = "RONDO_PREEMPTION_FILE";

// Creates the file that kPreemptionFileVariable names, if it is set. Thread-safe.
void note_preemption() noexcept;

}  // namespace rondo::env
