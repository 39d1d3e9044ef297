#pragma once

#include <cstdint>
#include <string>

#include "rondo/cost/profile.h"
#include "rondo/pipeline/schedule.h"
#include "rondo/pipeline/simulation.h"

// Strategies that are priced by formula.

namespace rondo::simulate {

// All units of a model together; workspaces are those of the unit with the largest.
struct ProfileTotals {
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;
  std::uint64_t state_bytes = 0;  // parameters, gradients, what the optimizer remembers
  std::uint64_t gradient_bytes = 0;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t activation_bytes = 0;
  std::uint64_t workspace_bytes = 0;
};
ProfileTotals totals_of(const cost::Profile& profile);

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

// A pipeline of equal parts of a model.
struct PipelineSettings {
  int stages = 1;                 // ranks of the pipeline
  int micro_batches = 1;          // of a pass; the profile is of one
  int passes = 1;                 // accumulated in a step
  std::string schedule = "1f1b";  // pipeline::schedule_names()
  int chunks = 2;                 // interleaved: parts of the model on a rank
  double message_s = 0;           // until a micro-batch's activations or gradients are at a neighbour
};
// A step of it.
struct PipelineStep {
  double step_s = 0;              // all passes, and the optimizer
  double idle_share = 0;          // of the step, of the rank that stands still longest
  std::uint64_t peak_bytes = 0;   // of the rank that needs most
  pipeline::Schedule schedule;    // that was simulated ...
  pipeline::Simulation timeline;  // ... and how a pass went
};
// Simulates the schedule with the profile's times of a micro-batch; half of a backward pass is for the
// gradients of the inputs. Throws UsageError for settings that cannot be.
PipelineStep pipeline_step(const cost::Profile& profile, const PipelineSettings& settings);

}  // namespace rondo::simulate
