#pragma once

#include <cstdint>
#include <string>

namespace rondo::bench {

struct MemoryTrackingWorker {
  std::string model;            // a gpt, a name for make_model
  std::int64_t batch_size = 4;  // samples
  bool tracked = false;
};

// Trains on one process and thread. Says {"ready": true}, and then answers each line "N" on standard input
// with the milliseconds of N steps, {"step_ms": [...]}, until the input ends.
void train_for_memory_tracking(const MemoryTrackingWorker& options);

}  // namespace rondo::bench
