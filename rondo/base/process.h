#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

namespace rondo {

// Processor model and number of processors: what was measured holds for machines that agree in it.
std::string machine_name();

// The name by which this host calls itself; "unknown host" when the kernel does not say.
std::string host_name();

// Where a measurement of this machine is kept: the path in the environment variable `variable` when it is
// set, else rondo/`file` in $XDG_CACHE_HOME or ~/.cache. Empty when none of these is set.
std::filesystem::path measurement_path(const char* variable, const char* file);

// Finds a module of rondo's own ("rondo_mpi.so"): code that a program loads by name, and only where it is
// asked for. Looks at the path in the variable of the module's name ($RONDO_MPI_MODULE), which need not
// exist; then for the file beside this program, in ../lib and ../../lib from there, and where the dynamic
// linker looks (the program's run path, LD_LIBRARY_PATH, the system's folders). Returns an empty text where
// there is none. Any thread.
std::string find_module(const std::string& file);

// Forks between the first OwnProcess and this process; only the handler of forks writes it.
extern std::atomic<std::uint64_t> forks_since_own_process;

// The process in which the object was made, told from the children that are forked from it later. Threads and
// locked mutexes of the parent do not work there. Costs no system call.
class OwnProcess {
 public:
  OwnProcess();

  // False in a child that was forked after the object was made. Any thread.
  bool is_current() const noexcept {
    return forks_since_own_process.load(std::memory_order_relaxed) == forks_;
  }

 private:
  std::uint64_t forks_;
};

}  // namespace rondo
