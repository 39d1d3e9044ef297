#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace rondo {

// Status of a process or thread, as the kernel reports it in /proc/PID/stat; proc(5) numbers the fields.
class ProcessStatus {
 public:
  // Reads the status of a process, or of a thread of any process. Returns nothing once it has exited and been
  // reaped. Thread-safe.
  static std::optional<ProcessStatus> read(pid_t process);
  // Reads this process's status, also where /proc shows the processes of another PID namespace. Thread-safe.
  static std::optional<ProcessStatus> read_own();

  // Returns 'R' (runs), 'S' (sleeps), 'T' (stopped by a signal), 't' (stopped by a debugger), 'Z' (exited)...
  char state() const { return fields_.front(); }
  // Returns the process whose child it is.
  pid_t parent() const { return static_cast<pid_t>(field(4)); }
  // Returns the number in a field from 4 on, 0 if there is no such field.
  std::uint64_t field(int number) const;

 private:
  static std::optional<ProcessStatus> read_from(const std::string& directory);
  explicit ProcessStatus(std::string fields) : fields_(std::move(fields)) {}

  std::string fields_;  // from field 3 on
};

}  // namespace rondo
