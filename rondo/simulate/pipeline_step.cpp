#include "rondo/simulate/pipeline_step.h"

#include <algorithm>

#include "rondo/simulate/profile_totals.h"

namespace rondo::simulate {

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
