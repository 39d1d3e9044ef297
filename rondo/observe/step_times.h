#pragma once

namespace rondo {

// Where the wall time of one training step went.
struct StepTimes {
  double step_ms = 0;          // from the end of the step before to the end of this one
  double compute_ms = 0;       // step_ms without exposed_comm_ms
  double comm_ms = 0;          // communication, overlapped with computation or not
  double exposed_comm_ms = 0;  // computation stood still for communication
};

}  // namespace rondo
