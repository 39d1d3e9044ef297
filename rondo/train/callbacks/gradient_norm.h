#pragma once

#include <optional>

#include "rondo/train/callback.h"

namespace rondo {

// A callback that requests the L2 norm of all gradients, without clipping: StepRecord::gradient_norm, which
// metrics.jsonl and TensorBoard include. It costs a pass over the gradients and, under sharding, a small
// message.
class GradientNorm final : public Callback {
 public:
  // Interval and warning limit.
  struct Options {
    std::int64_t every_steps = 1;  // steps between measurements
    double warn_above = 0;         // a larger norm logs a warning on rank 0; 0: never
  };
  // Creates a callback that measures from the first fit on.
  explicit GradientNorm(const Options& options) : options_(options) {}

  std::string name() const override { return "gradient_norm"; }
  bool wants_gradient_norm(std::int64_t step) const override {
    return (step + 1) % options_.every_steps == 0;
  }
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  std::optional<double> largest() const { return largest_; }  // over all fits of this object

 private:
  Options options_;
  std::optional<double> largest_;
};

}  // namespace rondo
