#pragma once

#include <cstdint>

// Counters of the simulated accelerator's work, over all devices and threads of this process.
namespace rondo::sim {

struct Counts {
  std::int64_t host_to_device = 0;    // copies
  std::int64_t device_to_host = 0;    // copies, and values read by item()
  std::int64_t device_to_device = 0;  // copies within a device and between devices
  // Waits of the host: blocking copies, operators that return values, and calls.
  std::int64_t synchronisations = 0;
  std::int64_t launches = 0;  // operators, without views and allocations
};

// Name of the module's exported function that fills a Counts.
inline constexpr const char* kReadCounts = "rondo_sim_read_counts";
using ReadCounts = void (*)(Counts*);

}  // namespace rondo::sim
