#include "rondo/train/callbacks/model_checkpoint.h"

#include <algorithm>

#include "rondo/train/callbacks/save_or_warn.h"
#include "rondo/train/trainer.h"

namespace rondo {

void ModelCheckpoint::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  if (!options_.best_of.empty()) best_.require_validation(outline);
  require_writable(trainer.strategy().context(), options_.directory, options_.in_parts);
  // What a validation that was due changes is not in the checkpoint yet.
  saved_step_ = outline.validation_due ? -1 : outline.first_step;
  replaced_ = trainer.times_replaced();
}

void ModelCheckpoint::on_epoch_end(Trainer&, const EpochRecord& record) {
  if (options_.best_of.empty() && options_.every_steps == 0)
    due_ = (record.epoch + 1) % std::max<std::int64_t>(1, options_.every_epochs) == 0;
}

void ModelCheckpoint::on_validation_end(Trainer&, const ValidationRecord& record) {
  if (!options_.best_of.empty()) due_ = best_.improves(record);
}

void ModelCheckpoint::on_step_complete(Trainer& trainer, const StepRecord& record) {
  if (options_.best_of.empty() && options_.every_steps > 0) due_ = record.step % options_.every_steps == 0;
  if (!due_) return;
  save_or_warn(trainer, "the checkpoint", [&] { save(trainer); });
}

void ModelCheckpoint::on_train_end(Trainer& trainer, const FitResult&) {
  if (options_.best_of.empty() || due_) save(trainer);
  trainer.finish_save();
}

nlohmann::json ModelCheckpoint::state() const {
  return options_.best_of.empty() ? nlohmann::json() : nlohmann::json{{"best", best_.state()}};
}

void ModelCheckpoint::restore(const nlohmann::json& state) {
  if (!state.is_null()) best_.restore(state.at("best"));
}

void ModelCheckpoint::save(Trainer& trainer) {
  due_ = false;
  if (saved_step_ == trainer.position().step && replaced_ == trainer.times_replaced()) return;
  trainer.save(options_.directory, SaveOptions{.keep = options_.keep,
                                               .in_parts = options_.in_parts,
                                               .in_background = options_.in_background,
                                               .incremental = options_.incremental,
                                               .of_validation = !options_.best_of.empty()});
  saved_step_ = trainer.position().step;
  replaced_ = trainer.times_replaced();
}

}  // namespace rondo
