#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace rondo::bench {

// Memory of a process as the kernel counts it now, in bytes.
struct ResidentMemory {
  std::uint64_t pss = 0;  // a page that n processes have mapped counts as 1/n, the programs' own code too
  // Everything that is resident, where only pages of shared memory (not of files) are divided by who has
  // mapped them: over the ranks of a host, memory that they share counts once.
  std::uint64_t resident = 0;
};

// Walks all pages of the process: milliseconds for a large one. Zeros when it is gone.
ResidentMemory resident_memory(pid_t process);

// Bytes that left through `interface` of the network namespace in which `process` is, as the kernel counts
// them (with headers). 0 when there is no such interface.
std::uint64_t bytes_sent(pid_t process, const std::string& interface);

}  // namespace rondo::bench
