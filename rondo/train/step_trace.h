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

// Takes the timeline of training steps on this rank: their phases, what each unit of the model computed in
// them, when computation waited, and the operations of communication with what was computed meanwhile. What
// happens between two steps, such as a validation, is no part of it. The thread that trains uses it.
class StepTrace {
 public:
  StepTrace(const torch::nn::Module& model, std::function<void(TraceSpan)> sink);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // From here to finish_step() the units of the model are watched.
  void begin_step();
  // Something that the rank did, in monotonic_ns(): "data", "forward", "backward", "optimizer".
  void add_phase(const char* name, std::int64_t begin_ns, std::int64_t end_ns);
  // Hands out the step's events. `spans` are the operations that ended in this step; they may have begun in
  // the one before.
  void finish_step(std::int64_t step, const std::vector<TraceSpan>& spans);

 private:
  void detach();

  std::function<void(TraceSpan)> sink_;
  std::vector<UnitState*> units_;
  std::shared_ptr<UnitSpans> unit_spans_;
  std::vector<TraceSpan> before_;  // what was computed in the step before
  std::vector<TraceSpan> now_;
  std::int64_t begin_ns_ = 0;  // of the step
};

}  // namespace rondo
