#include "rondo/train/log_targets/tensorboard/tensor_board.h"

#include <array>
#include <chrono>

#include "rondo/base/text.h"
#include "rondo/train/histograms.h"
#include "rondo/train/log_targets/tensorboard/tensorboard_target.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

void TensorBoard::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  unit_ = outline.unit;
  total_steps_ = outline.total_steps;
  if (trainer.strategy().context().rank() != 0) return;
  writer_.emplace(options_.directory, wall_time());
  output_.emplace(writer_->path());
}

void TensorBoard::on_step_end(Trainer& trainer, const StepRecord& record) {
  if (is_histogram_due(record.step)) {
    const auto histograms = histograms_of(trainer);
    const double now = wall_time();
    if (writer_) {
      output_->write([&] {
        for (const auto& [tag, histogram] : histograms)
          writer_->add_histogram(tag, histogram, record.step, now);
      });
    }
  }
  if (!writer_ || (record.step % options_.every_steps != 0 && record.step != total_steps_)) return;
  const std::array<std::pair<std::string, double>, 5> values = {
      {{"train/loss", record.loss},
       {"train/learning_rate", record.learning_rate},
       {str("throughput/", unit_, "_per_s"), record.rate},
       {"time/step_ms", record.times.step_ms},
       {"time/exposed_comm_ms", record.times.exposed_comm_ms}}};
  output_->write([&] { writer_->add_scalars(values, record.step, wall_time()); });
}

void TensorBoard::on_validation_end(Trainer&, const ValidationRecord& record) {
  if (!writer_) return;
  output_->write([&] {
    for (const auto& [metric, value] : record.values)
      writer_->add_scalar("validation/" + metric, value, record.step, wall_time());
  });
}

LogTarget TensorBoardTarget::make(const Options& options, const LoggedRun& run) {
  return {.callback = std::make_shared<TensorBoard>(
              TensorBoard::Options{.directory = run.directory,
                                   .every_steps = run.every_steps,
                                   .histograms_every = options.histograms_every})};
}

}  // namespace rondo
