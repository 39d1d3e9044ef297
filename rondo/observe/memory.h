#pragma once

#include <functional>
#include <optional>

#include "rondo/base/bytes.h"

namespace rondo {

// Memory of this process as the kernel counts it.
struct ProcessMemory {
  Bytes rss;       // resident now; shared pages count in full
  Bytes peak_rss;  // largest rss so far
  Bytes pss;       // resident now; a page shared by n processes counts as 1/n. Sums over ranks are true
};

// Largest resident size so far. Costs about a microsecond. Any thread.
Bytes peak_rss();

// Reads /proc/self/smaps_rollup, which walks all pages: milliseconds for a large process, so not for every
// step. `pss` is 0 where the kernel does not tell it. Any thread.
ProcessMemory process_memory();

// Pages that belong to this process alone: no mapped files, no shared memory. Tens of microseconds. Any
// thread.
Bytes private_memory();

// Follows the peak of the memory that training has in use. One thread uses an object.
class MemoryMeter {
 public:
  // `tracked` returns the bytes held now by an allocator that tracks its own memory (shared segments in full
  // at the rank that owns them). Without it the meter takes the process's private and shared-memory pages,
  // without mapped files.
  explicit MemoryMeter(std::function<Bytes()> tracked = {}) : tracked_(std::move(tracked)) {}

  // Looks now and returns the largest value seen so far. Tens of microseconds without such an allocator.
  Bytes sample();
  Bytes peak() const { return peak_; }
  // Largest sum of PSS seen by sample_pss().
  Bytes sample_pss();
  Bytes peak_pss() const { return peak_pss_; }

 private:
  std::function<Bytes()> tracked_;
  Bytes peak_;
  Bytes peak_pss_;
};

}  // namespace rondo
