#include "rondo/simulate/closed_forms.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/simulate/profile_totals.h"

namespace rondo::simulate {

ClosedForm parameter_server_step(const cost::Profile& profile, const ParameterServerSettings& s) {
  if (s.workers < 1 || s.servers < 1 || s.worker_bytes_per_s <= 0 || s.server_bytes_per_s <= 0)
    throw UsageError("--parameter-server: workers, servers and rates must be positive");
  const ProfileTotals t = totals_of(profile);
  const auto time = [&](std::uint64_t bytes) {
    const double b = static_cast<double>(bytes);
    const double at_worker = b / s.worker_bytes_per_s;
    const double at_server = b * (s.is_synchronous ? s.workers : 1) / s.servers / s.server_bytes_per_s;
    return std::max(at_worker, at_server);
  };
  const double update = t.optimizer_s / s.servers;
  ClosedForm result;
  result.step_s = std::max(t.forward_s, time(t.parameter_bytes)) +
                  std::max(t.backward_s, time(t.gradient_bytes)) + (s.is_synchronous ? update : 0);
  if (!s.is_synchronous) {
    // Servers carry everybody's bytes all the same: that bounds how often a worker can step.
    const double all = static_cast<double>(t.parameter_bytes) * s.workers / s.servers / s.server_bytes_per_s;
    result.step_s = std::max(result.step_s, all);
  }
  result.idle_share = 1 - (t.forward_s + t.backward_s) / result.step_s;
  result.peak_bytes =
      profile.base_bytes + t.parameter_bytes + t.gradient_bytes + t.activation_bytes + t.workspace_bytes;
  return result;
}

}  // namespace rondo::simulate
