#pragma once

#include <cmath>

#include "rondo/train/callback.h"

namespace rondo {

// A callback that ends training when a loss is not finite. A step that a gradient scaler skipped does not
// count: its loss may be finite all the same.
class TerminateOnNan final : public Callback {
 public:
  std::string name() const override { return "terminate_on_nan"; }
  void on_step_end(Trainer&, const StepRecord& record) override {
    seen_ = seen_ || !std::isfinite(record.loss);
  }
  bool wants_to_stop() const override { return seen_; }

 private:
  bool seen_ = false;
};

}  // namespace rondo
