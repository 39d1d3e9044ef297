#pragma once

#include "rondo/base/time.h"

namespace rondo {

// The wall time of one training step, and its parts.
struct StepTimes {
  double step_ms = 0;          // from the end of the previous step to the end of this one
  double compute_ms = 0;       // step_ms without exposed_comm_ms
  double comm_ms = 0;          // communication, overlapped with computation or not
  double exposed_comm_ms = 0;  // time in which computation waited for communication
};

// A timer of consecutive steps. Pauses (validation, saving) belong to no step. One thread uses an object.
class StepTimer {
 public:
  StepTimer() : started_(Clock::now()) {}  // starts the first step

  // Starts the first step, or the next step after a pause.
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
