#pragma once

#include <cstdint>
#include <string>

#include "rondo/cost/profile.h"
#include "rondo/pipeline/schedule.h"
#include "rondo/pipeline/simulation.h"

namespace rondo::simulate {

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
