#pragma once

#include <vector>

#include "rondo/pipeline/schedule.h"

namespace rondo::pipeline {

// What one micro-batch takes in a stage, in seconds.
struct StageTimes {
  double forward_s = 1;          // the forward pass
  double backward_input_s = 1;   // gradients of the stage's inputs
  double backward_weight_s = 1;  // of its parameters; a whole backward pass takes both
  double message_s = 0;          // until what the stage sends to a neighbour is there, besides computing
};

// A computation of a rank, in seconds from the begin of the step.
struct Slot {
  Action action;       // forward or one of the backward passes
  double begin_s = 0;  // from when on
  double end_s = 0;    // until when
};

// How a schedule goes.
struct Simulation {
  double step_s = 0;                     // until the last rank has computed its last
  std::vector<std::vector<Slot>> slots;  // by rank, in order
  std::vector<double> busy_s;            // by rank: computing
  std::vector<double> idle_s;            // by rank: the rest of the step
  std::vector<Action> stuck;             // of each rank that waits for ever, what it waits with
  double bubble() const;                 // the largest idle time as a share of the step
};

// Runs the schedule: every rank does its actions in order, sends travel beside the computation. `times` is by
// stage. Throws UsageError for another number of stages.
Simulation simulate(const Schedule& schedule, const std::vector<StageTimes>& times);
// The same where all stages are alike: a stage of `stages_per_rank` on a rank takes that part of `of_rank`.
Simulation simulate(const Schedule& schedule, const StageTimes& of_rank);

}  // namespace rondo::pipeline
