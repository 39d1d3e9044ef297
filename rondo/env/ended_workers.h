#pragma once

#include <cstddef>
#include <string>

namespace rondo::env {

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

}  // namespace rondo::env
