#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rondo/env/environment.h"

namespace rondo::env {

// A slice of TPU chips and this host's place in it, as Cloud TPU and GKE describe it to each host.
struct TpuSlice {
  std::optional<int> worker = {};     // TPU_WORKER_ID: of this host, from 0
  std::vector<std::string> hosts;     // TPU_WORKER_HOSTNAMES, by worker; empty: not told
  std::vector<int> topology;          // TPU_TOPOLOGY: chips along each axis; empty: not told
  std::string accelerator_type = {};  // TPU_ACCELERATOR_TYPE, as "v4-32"; may be empty
};

// Empty when none of the four variables is set. Throws UsageError naming the two that contradict each other:
// a worker that the hosts do not have, a host that stands twice, an accelerator type of another number of
// chips than the topology, chips that hosts do not divide. A type of v2, v3, v4 and v5p counts cores, two a
// chip, that of v5e ("v5litepod-16") and v6e chips; of others the number is not judged.
std::optional<TpuSlice> read_tpu_slice(const EnvironmentMap& environment);

// "2x2" or "4x4x2": lengths of one or more axes, each above zero. Throws UsageError naming `what`.
std::vector<int> parse_axes(const std::string& text, const std::string& what);

}  // namespace rondo::env
