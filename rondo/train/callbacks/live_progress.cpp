#include "rondo/train/callbacks/live_progress.h"

#include "rondo/base/progress.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

constexpr Duration kEvery = std::chrono::seconds(1);

}  // namespace

void LiveProgress::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  if (trainer.strategy().context().rank() != 0) return;
  file_ = std::make_unique<RunProgressFile>(run_directory_);
  progress_ = {.step = outline.first_step, .total_steps = outline.total_steps, .unit = outline.unit};
  due_ = Clock::now();
}

void LiveProgress::on_step_end(Trainer&, const StepRecord& record) {
  if (!file_) return;
  progress_.step = record.step;
  progress_.epoch = record.epochs_done;
  progress_.loss = record.loss;
  progress_.learning_rate = record.learning_rate;
  progress_.rate = smoothed_rate(progress_.rate, record.rate);
  progress_.elapsed_s = record.elapsed_s;
  progress_.validated = progress_.to_validate = 0;
  write_if_due();
}

void LiveProgress::on_validation_progress(Trainer&, std::int64_t batches, std::int64_t of) {
  if (!file_) return;
  progress_.validated = batches;
  progress_.to_validate = of;
  write_if_due();
}

void LiveProgress::on_validation_end(Trainer&, const ValidationRecord&) {
  progress_.validated = progress_.to_validate = 0;
}

void LiveProgress::on_train_end(Trainer&, const FitResult&) {
  if (file_) file_->write(progress_);
  file_.reset();
}

void LiveProgress::write_if_due() {
  const TimePoint now = Clock::now();
  if (now < due_) return;
  due_ = now + kEvery;
  file_->write(progress_);
}

}  // namespace rondo
