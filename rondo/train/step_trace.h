#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "rondo/format/trace.h"
#include "rondo/nn/unit_state.h"
#include "rondo/observe/unit_spans.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// Takes the timeline of training steps on this rank: their phases, what each unit of the model computed in
// them, when computation waited, and the operations of communication with what was computed meanwhile. The
// thread that trains uses it.
class StepTrace {
 public:
  // Watches the units of `model`, until it is destroyed.
  StepTrace(const torch::nn::Module& model, std::function<void(TraceEvent)> sink);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Forgets what happened since the last step, such as a validation.
  void begin_step();
  // Something that the rank did, in monotonic_ns(): "data", "forward", "backward", "optimizer".
  void add_phase(const char* name, std::int64_t begin_ns, std::int64_t end_ns);
  // Hands out the step's events. `spans` are the operations that ended in this step; they may have begun in
  // the one before.
  void finish_step(std::int64_t step, const std::vector<CommunicationSpan>& spans);

 private:
  std::function<void(TraceEvent)> sink_;
  std::vector<UnitState*> units_;
  std::shared_ptr<UnitSpans> unit_spans_;
  std::vector<TraceEvent> before_;  // what was computed in the step before
  std::vector<TraceEvent> now_;
  std::int64_t begin_ns_ = 0;  // of the step
};

}  // namespace rondo
