#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rondo/env/environment.h"

namespace rondo::env {

// A slice of TPU chips and this host's place in it, as Cloud TPU and GKE describe it to each host.
struct TpuSlice {
  std::optional<int> worker = {};     // TPU_WORKER_ID: number of this host, from 0
  std::vector<std::string> hosts;     // TPU_WORKER_HOSTNAMES, by worker; empty: unknown
  std::vector<int> topology;          // TPU_TOPOLOGY: chips along each axis; empty: unknown
  std::string accelerator_type = {};  // TPU_ACCELERATOR_TYPE, such as "v4-32"; may be empty
};

// Parses the four variables; empty if none is set. Throws UsageError naming two variables that contradict
// each other: a worker number that is too large, a host listed twice, an accelerator type whose chip count
// differs from the topology, or a chip count that the hosts do not divide. Types v2, v3, v4 and v5p count
// cores, two per chip; v5e ("v5litepod-16") and v6e count chips. Other types are not checked.
std::optional<TpuSlice> read_tpu_slice(const EnvironmentMap& environment);

// Parses "2x2" or "4x4x2": one to three positive lengths. Throws UsageError naming `what`.
std::vector<int> parse_axes(const std::string& text, const std::string& what);

}  // namespace rondo::env
