#include "rondo/train/callbacks/model_checkpoint.h"

#include "rondo/train/trainer.h"

namespace rondo {

void ModelCheckpoint::on_train_begin(Trainer&, const FitPlan& plan) { saved_step_ = plan.first_step; }

void ModelCheckpoint::on_step_end(Trainer& trainer, const StepRecord& record) {
  if (options_.every_steps > 0 && record.step % options_.every_steps == 0) save(trainer);
}

void ModelCheckpoint::on_epoch_end(Trainer& trainer, std::int64_t) {
  if (options_.every_steps == 0) save(trainer);
}

void ModelCheckpoint::on_train_end(Trainer& trainer, const FitResult&) { save(trainer); }

void ModelCheckpoint::save(Trainer& trainer) {
  if (saved_step_ == trainer.position().step) return;
  trainer.save(options_.directory, options_.keep);
  saved_step_ = trainer.position().step;
}

}  // namespace rondo
