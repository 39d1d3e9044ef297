#pragma once

#include "rondo/base/time.h"

namespace rondo {

// The wall time of one training step, and its parts.
struct StepTimes {
  double step_ms = 0;          // from the end of the step before to the end of this one
  double compute_ms = 0;       // step_ms without exposed_comm_ms
  double comm_ms = 0;          // communication, overlapped with computation or not
  double exposed_comm_ms = 0;  // computation stood still for communication
};

// Measures steps that follow one another. Time in pauses (validation, saving) belongs to no step. One thread.
class StepTimer {
 public:
  StepTimer() : started_(Clock::now()) {}  // starts the first step

  // Starts the first step, or the next one after something that is not part of training.
  void restart() { started_ = Clock::now(); }

  // Ends a step and starts the next.
  StepTimes finish_step(Duration communication, Duration exposed) {
    const TimePoint now = Clock::now();
    StepTimes times;
    times.step_ms = milliseconds(now - started_);
    times.comm_ms = milliseconds(communication);
    times.exposed_comm_ms = milliseconds(exposed);
    times.compute_ms = times.step_ms - times.exposed_comm_ms;
    if (times.compute_ms < 0) times.compute_ms = 0;
    started_ = now;
    return times;
  }

 private:
  TimePoint started_;
};

}  // namespace rondo
