#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

namespace rondo {

// Returns the processor model and the number of processors. Measurements are reused between machines with
// equal names.
std::string machine_name();

// Returns this host's name, or "unknown host" if the kernel does not report one.
std::string host_name();

// Returns the path of a file with measurements of this machine: the value of the environment variable
// `variable` if it is set, else rondo/`file` in $XDG_CACHE_HOME or ~/.cache. Returns an empty path if none of
// these is set.
std::filesystem::path measurement_path(const char* variable, const char* file);

// Finds a module of rondo ("rondo_mpi.so"), a library that programs load by name on demand. First tries the
// path in the module's environment variable ($RONDO_MPI_MODULE), which need not exist. Then searches the
// folder of this program, ../lib and ../../lib relative to it, and the dynamic linker's folders (run path,
// LD_LIBRARY_PATH, system folders). Returns an empty text if there is none. Thread-safe.
std::string find_module(const std::string& file);

// Number of forks between the first OwnProcess and this process. Only the fork handler writes it.
extern std::atomic<std::uint64_t> forks_since_own_process;

// The process that created the object; tells it apart from children forked later, in which the parent's
// threads and locked mutexes do not work. Makes no system call.
class OwnProcess {
 public:
  OwnProcess();

  // Returns false in a child that was forked after the object was created. Thread-safe.
  bool is_current() const noexcept {
    return forks_since_own_process.load(std::memory_order_relaxed) == forks_;
  }

 private:
  std::uint64_t forks_;
};

}  // namespace rondo
