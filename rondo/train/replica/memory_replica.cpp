#include "rondo/train/replica/memory_replica.h"

#include "rondo/base/log.h"
#include "rondo/train/callback_failures.h"
#include "rondo/train/trainer.h"

namespace rondo {

void MemoryReplica::on_train_begin(Trainer& trainer, const FitOutline&) {
  saver_.emplace(trainer.strategy().context(), options_.root);
}

void MemoryReplica::on_step_complete(Trainer& trainer, const StepRecord& record) {
  if (record.step % options_.every_steps != 0) return;
  try {
    replicate(trainer, *saver_);
  } catch (const CallbackFailed&) {
    throw;
  } catch (const AgreedError& error) {
    if (trainer.strategy().context().rank() == 0)
      log::warning("the replica of step ", record.step, " could not be begun: ", error.what(),
                   "; training goes on, and what was there before stands");
  }
}

void MemoryReplica::on_train_end(Trainer&, const FitResult&) { saver_.reset(); }

}  // namespace rondo
