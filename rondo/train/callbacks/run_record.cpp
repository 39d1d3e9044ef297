#include "rondo/train/callbacks/run_record.h"

#include "rondo/format/run_directory.h"
#include "rondo/train/trainer.h"

namespace rondo {

void RunRecord::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  const Context& context = trainer.strategy().context();
  if (context.rank() != 0) return;
  add_run_start(run_directory_ / "run.json", {.made = made_,
                                              .strategy = std::string(trainer.strategy().name()),
                                              .backend = std::string(context.backend_name()),
                                              .ranks = context.world_size(),
                                              .first_step = outline.first_step,
                                              .total_steps = outline.total_steps});
}

}  // namespace rondo
