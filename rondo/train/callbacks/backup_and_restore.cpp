#include "rondo/train/callbacks/backup_and_restore.h"

#include "rondo/backend/collectives.h"
#include "rondo/train/callbacks/save_or_warn.h"
#include "rondo/train/trainer.h"

namespace rondo {

void BackupAndRestore::before_fit(Trainer& trainer) {
  if (trainer.position().step > 0) return;
  const Context& context = trainer.strategy().context();
  // Rank 0's disk decides for all.
  const bool here = context.rank() == 0 && std::filesystem::exists(options_.directory) &&
                    !std::filesystem::is_empty(options_.directory);
  if (broadcast_object(here, context.world()).get<bool>()) trainer.restore(options_.directory);
}

void BackupAndRestore::on_train_begin(Trainer& trainer, const FitOutline&) {
  require_writable(trainer.strategy().context(), options_.directory);
}

void BackupAndRestore::on_epoch_end(Trainer&, const EpochRecord&) { due_ = options_.every_steps == 0; }

void BackupAndRestore::on_step_complete(Trainer& trainer, const StepRecord& record) {
  due_ = due_ || (options_.every_steps > 0 && record.step % options_.every_steps == 0);
  if (!std::exchange(due_, false)) return;
  save_or_warn(trainer, "the backup", [&] { trainer.save(options_.directory, 1); });
}

void BackupAndRestore::on_train_end(Trainer& trainer, const FitResult& result) {
  if (result.end == FitEnd::preempted) {
    trainer.save(options_.directory, 1);
  } else if (trainer.strategy().context().rank() == 0) {
    std::filesystem::remove_all(options_.directory);
  }
}

}  // namespace rondo
