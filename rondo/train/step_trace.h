#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "rondo/format/trace.h"
#include "rondo/nn/unit_state.h"
#include "rondo/observe/unit_profiler.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// A recorder of the timeline of training steps on this rank: phases, computation of each unit, waits, and
// communication with the computation that it overlapped. It omits events between steps, such as a validation.
// The training thread uses it.
class StepTrace {
 public:
  StepTrace(const torch::nn::Module& model, std::function<void(TraceSpan)> sink);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Starts observing the model's units, until finish_step().
  void begin_step();
  // Adds a phase of this rank, in monotonic_ns(): "data", "forward", "backward", "optimizer".
  void add_phase(const char* name, std::int64_t begin_ns, std::int64_t end_ns);
  // Passes the step's events to the sink. `spans` are the operations that ended in this step; they may have
  // begun in the previous one.
  void finish_step(std::int64_t step, const std::vector<TraceSpan>& spans);

 private:
  void detach();

  std::function<void(TraceSpan)> sink_;
  std::vector<UnitState*> units_;
  std::shared_ptr<UnitSpans> unit_spans_;
  std::vector<TraceSpan> before_;  // computation of the previous step
  std::vector<TraceSpan> now_;
  std::int64_t begin_ns_ = 0;  // start of the step
};

}  // namespace rondo
