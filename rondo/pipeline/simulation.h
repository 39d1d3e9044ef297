#pragma once

#include <vector>

#include "rondo/pipeline/schedule.h"

namespace rondo::pipeline {

// Times of one micro-batch in a stage, in seconds.
struct StageTimes {
  double forward_s = 1;         // forward pass
  double backward_input_s = 1;  // gradients of the stage's inputs
  // Gradients of its parameters; an unsplit backward pass takes the sum of both.
  double backward_weight_s = 1;
  double message_s = 0;  // time from the end of the computation until a neighbour has the message
};

// A computation of a rank, in seconds since the start of the step.
struct Slot {
  Action action;       // a forward or backward pass
  double begin_s = 0;  // start
  double end_s = 0;    // end
};

// The result of simulate().
struct Simulation {
  double step_s = 0;                     // until the last rank has finished its last computation
  std::vector<std::vector<Slot>> slots;  // by rank, in order
  std::vector<double> busy_s;            // by rank: compute time
  std::vector<double> idle_s;            // by rank: rest of the step
  std::vector<Action> stuck;             // blocked action of each deadlocked rank
  double bubble() const;                 // largest idle time as a share of the step
};

// Runs the schedule: every rank executes its actions in order, and sends overlap computation. `times` is by
// stage. Throws UsageError for another number of stages.
Simulation simulate(const Schedule& schedule, const std::vector<StageTimes>& times);
// Runs the schedule with equal stages: each of a rank's `stages_per_rank` stages takes that part of
// `of_rank`.
Simulation simulate(const Schedule& schedule, const StageTimes& of_rank);

}  // namespace rondo::pipeline
