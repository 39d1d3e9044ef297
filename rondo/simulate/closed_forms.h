#pragma once

#include <cstdint>

#include "rondo/cost/profile.h"

// Strategies that are priced by formula.
namespace rondo::simulate {

struct ClosedForm {
  double step_s = 0;
  double idle_share = 0;         // of the step, of a rank
  std::uint64_t peak_bytes = 0;  // of the rank that needs most
};

// Workers send gradients to servers that own the parameters in equal parts, and read them back.
struct ParameterServerSettings {
  int workers = 1;
  int servers = 1;
  double worker_bytes_per_s = 1e9;
  double server_bytes_per_s = 1e9;
  bool is_synchronous = true;  // asynchronous: a worker waits only for its own bytes
};
// The slower of a worker's link, which carries gradients out and parameters in at the same time, and a
// server's, which carries those of all workers; pushing goes on under backward, pulling under forward.
ClosedForm parameter_server_step(const cost::Profile& profile, const ParameterServerSettings& settings);

}  // namespace rondo::simulate
