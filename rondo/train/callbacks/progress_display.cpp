#include "rondo/train/callbacks/progress_display.h"

#include <iomanip>
#include <optional>
#include <string>

#include "rondo/base/progress.h"
#include "rondo/base/stage_progress.h"
#include "rondo/base/text.h"
#include "rondo/train/trainer.h"

namespace rondo {

struct ProgressDisplay::Display {
  Display(std::FILE* stream, const ProgressOptions& options) : progress(stream, options) {}

  Progress progress;
  // The first step may take long: it allocates memory, and kernels are chosen in it.
  std::optional<StageProgress> first_step;  // until it has been done
  std::string unit;
  double rate = 0;
};

ProgressDisplay::ProgressDisplay(const Options& options) : options_(options) {}

ProgressDisplay::~ProgressDisplay() = default;

void ProgressDisplay::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  if (trainer.strategy().context().rank() != 0) return;
  ProgressOptions options;
  options.style = options_.style;
  options.total_steps = outline.total_steps;
  options.first_step = outline.first_step;
  options.line_every_steps = options_.line_every_steps;
  display_ = std::make_unique<Display>(options_.stream, options);
  display_->unit = outline.unit;
  display_->first_step.emplace(options_.stream, StageProgressOptions{.style = options_.style});
  display_->first_step->begin("first step");
}

void ProgressDisplay::on_step_end(Trainer&, const StepRecord& record) {
  if (!display_) return;
  display_->first_step.reset();
  display_->rate = smoothed_rate(display_->rate, record.rate);
  display_->progress.update({.step = record.step,
                             .epoch = record.epochs_done,
                             .loss = record.loss,
                             .learning_rate = record.learning_rate,
                             .rate = display_->rate,
                             .unit = display_->unit});
}

void ProgressDisplay::on_validation_progress(Trainer&, std::int64_t batches, std::int64_t of) {
  if (!display_) return;
  display_->first_step.reset();
  display_->progress.activity("validation", batches, of, "batches");
}

void ProgressDisplay::on_validation_end(Trainer&, const ValidationRecord& record) {
  if (!display_) return;
  TextStream line;
  line << "step " << record.step << "  validation" << std::fixed << std::setprecision(4);
  const char* separator = " ";
  for (const auto& [metric, value] : record.values) {
    line << separator << metric << ' ' << value;
    separator = "  ";
  }
  display_->first_step.reset();
  display_->progress.note(line.str());
}

void ProgressDisplay::on_train_end(Trainer&, const FitResult&) { display_.reset(); }

}  // namespace rondo
