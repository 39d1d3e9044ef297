#include "rondo/train/callbacks/progress_display.h"

#include <iomanip>

#include "rondo/base/text.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

// Weight of a step's own throughput in the displayed figure; single steps vary too much.
constexpr double kSmoothing = 0.2;

}  // namespace

void ProgressDisplay::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  if (trainer.strategy().context().rank() != 0) return;
  unit_ = outline.unit;
  ProgressOptions options;
  options.style = options_.style;
  options.total_steps = outline.total_steps;
  options.first_step = outline.first_step;
  options.line_every_steps = options_.line_every_steps;
  progress_.emplace(options_.stream, options);
}

void ProgressDisplay::on_step_end(Trainer&, const StepRecord& record) {
  if (!progress_) return;
  smoothed_rate_ =
      smoothed_rate_ == 0 ? record.rate : smoothed_rate_ + kSmoothing * (record.rate - smoothed_rate_);
  progress_->update({.step = record.step,
                     .epoch = record.epochs_done,
                     .loss = record.loss,
                     .learning_rate = record.learning_rate,
                     .rate = smoothed_rate_,
                     .unit = unit_});
}

void ProgressDisplay::on_validation_progress(Trainer&, std::int64_t batches, std::int64_t of) {
  if (progress_) progress_->activity("validation", batches, of, "batches");
}

void ProgressDisplay::on_validation_end(Trainer&, const ValidationRecord& record) {
  if (!progress_) return;
  TextStream line;
  line << "step " << record.step << "  validation" << std::fixed << std::setprecision(4);
  const char* separator = " ";
  for (const auto& [metric, value] : record.values) {
    line << separator << metric << ' ' << value;
    separator = "  ";
  }
  progress_->note(line.str());
}

void ProgressDisplay::on_train_end(Trainer&, const FitResult&) { progress_.reset(); }

}  // namespace rondo
