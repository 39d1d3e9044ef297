#pragma once

#include <filesystem>
#include <optional>

#include "rondo/format/metrics_export.h"
#include "rondo/train/callback.h"
#include "rondo/train/callbacks/side_output.h"

namespace rondo {

// A callback that writes events.out.tfevents.* for TensorBoard on rank 0.
class TensorBoard final : public Callback {
 public:
  // Output directory and intervals.
  struct Options {
    std::filesystem::path directory = {};  // for events.out.tfevents.*
    std::int64_t every_steps = 10;         // steps between events
    // Steps between histograms of every weight and gradient; 0: none. In such a step the strategy completes
    // all gradients before the optimizer runs, and defers none.
    std::int64_t histograms_every = 0;
  };
  // The file is opened when training begins.
  explicit TensorBoard(Options options) : options_(std::move(options)) {}

  std::string name() const override { return "tensor_board"; }
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  bool wants_gradient_norm(std::int64_t step) const override { return is_histogram_due(step + 1); }
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;

 private:
  bool is_histogram_due(std::int64_t step) const {
    return options_.histograms_every > 0 && step % options_.histograms_every == 0;
  }

  Options options_;
  std::string unit_;
  std::int64_t total_steps_ = 0;
  std::optional<EventWriter> writer_;  // on rank 0
  std::optional<SideOutput> output_;   // its file
};

}  // namespace rondo
