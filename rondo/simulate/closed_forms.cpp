#include "rondo/simulate/closed_forms.h"

#include <algorithm>

#include "rondo/base/error.h"

namespace rondo::simulate {

ProfileTotals totals_of(const cost::Profile& profile) {
  ProfileTotals t;
  for (const cost::UnitProfile& u : profile.units) {
    t.forward_s += u.forward_s;
    t.backward_s += u.backward_s;
    t.optimizer_s += u.optimizer_s;
    t.state_bytes += u.parameter_bytes + u.gradient_bytes + u.optimizer_bytes;
    t.gradient_bytes += u.gradient_bytes;
    t.parameter_bytes += u.parameter_bytes;
    t.activation_bytes += u.activation_bytes;
    const auto backward = static_cast<std::uint64_t>(std::max<std::int64_t>(0, u.backward_workspace_bytes));
    t.workspace_bytes = std::max({t.workspace_bytes, u.forward_workspace_bytes, backward});
  }
  return t;
}

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

PipelineStep pipeline_step(const cost::Profile& profile, const PipelineSettings& s) {
  PipelineStep result;
  result.schedule = pipeline::make_schedule(s.schedule, s.stages, s.micro_batches, s.chunks);
  const ProfileTotals t = totals_of(profile);
  const double p = s.stages;
  const pipeline::StageTimes of_rank{t.forward_s / p, t.backward_s / 2 / p, t.backward_s / 2 / p,
                                     s.message_s};
  result.timeline = pipeline::simulate(result.schedule, of_rank);
  const double idle = *std::max_element(result.timeline.idle_s.begin(), result.timeline.idle_s.end());
  result.step_s = s.passes * result.timeline.step_s + t.optimizer_s / p;
  result.idle_share = s.passes * idle / result.step_s;
  const std::vector<int> peaks = peak_activations(result.schedule);
  const double alive = *std::max_element(peaks.begin(), peaks.end());
  result.peak_bytes = profile.base_bytes + t.workspace_bytes +
                      static_cast<std::uint64_t>(static_cast<double>(t.state_bytes) / p +
                                                 alive * static_cast<double>(t.activation_bytes) /
                                                     static_cast<double>(result.schedule.stages()));
  return result;
}

}  // namespace rondo::simulate
