#include "rondo/simulate/closed_forms.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::simulate {
namespace {

struct Totals {
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t gradient_bytes = 0;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t activation_bytes = 0;
  std::uint64_t workspace_bytes = 0;
};

Totals totals_of(const cost::Profile& profile) {
  Totals t;
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

}  // namespace

ClosedForm pipeline_step(const cost::Profile& profile, const PipelineSettings& s) {
  if (s.stages < 1 || s.micro_batches < 1 || s.interleaved < 1)
    throw UsageError("--pipeline: stages, micro_batches and interleaved must be at least 1");
  const Totals t = totals_of(profile);
  const double p = s.stages;
  const double m = s.micro_batches;
  const double v = s.interleaved;
  const double work = (t.forward_s + t.backward_s) / p;  // of one micro-batch on one stage
  const double messages = s.stages > 1 ? 2 * s.message_s * (m + p - 1) * v : 0;
  ClosedForm result;
  result.step_s = (m + (p - 1) / v) * work + messages + t.optimizer_s / p;
  result.idle_share = 1 - (m * work + t.optimizer_s / p) / result.step_s;
  // The first stage has min(p, m) micro-batches under way with 1F1B, all with GPipe.
  const double in_flight =
      s.one_forward_one_backward ? std::min(p, m) * (s.interleaved > 1 ? 1 + (p - 1) / (p * v) : 1) : m;
  result.peak_bytes = profile.base_bytes + t.workspace_bytes +
                      static_cast<std::uint64_t>(static_cast<double>(t.state_bytes) / p +
                                                 in_flight * static_cast<double>(t.activation_bytes) / p);
  return result;
}

ClosedForm parameter_server_step(const cost::Profile& profile, const ParameterServerSettings& s) {
  if (s.workers < 1 || s.servers < 1 || s.worker_bytes_per_s <= 0 || s.server_bytes_per_s <= 0)
    throw UsageError("--parameter-server: workers, servers and rates must be positive");
  const Totals t = totals_of(profile);
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
