#include "rondo/train/callbacks/timeline.h"

#include "rondo/backend/collectives.h"
#include "rondo/train/trainer.h"

namespace rondo {

std::function<void(TraceEvent)> Timeline::sink() {
  return [this](TraceEvent event) {
    if (writer_) writer_->add(std::move(event));
  };
}

std::function<void(const TraceCounter&)> Timeline::memory_sink() {
  return [this](const TraceCounter& counter) {
    if (writer_) writer_->add(counter);
  };
}

void Timeline::on_train_begin(Trainer& trainer, const FitPlan&) {
  writer_ = std::make_unique<TraceWriter>(run_directory_, trainer.strategy().context().rank());
}

void Timeline::on_train_end(Trainer& trainer, const FitResult&) {
  writer_.reset();
  const Context& context = trainer.strategy().context();
  barrier(context.world());  // every part is complete
  if (context.rank() == 0) merge_traces(run_directory_);
}

}  // namespace rondo
