#include "rondo/train/callbacks/epoch_rows.h"

#include <fstream>

#include "rondo/train/trainer.h"

namespace rondo {

void EpochRows::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  if (trainer.strategy().context().rank() != 0) return;
  std::string kept;
  bool dropped = false;
  file_.emplace(path_);
  if (!file_->is_stream()) {
    std::ifstream file(file_->target());
    for (std::string text; std::getline(file, text);) {
      const std::optional<std::int64_t> step = step_of(text);
      if (step && *step > outline.first_step) {
        dropped = true;
      } else {
        kept += text + "\n";
      }
    }
    if (dropped) file_->replace(kept);
  }
  output_.emplace(file_->is_stream() ? std::filesystem::path() : file_->target());
  is_new_ = kept.empty();
}

void EpochRows::on_epoch_end(Trainer&, const EpochRecord& record) {
  if (!file_) return;
  output_->write([&] {
    // Writes in one piece: a header without its line would be repeated.
    file_->write((is_new_ ? header(record) : "") + line(record) + "\n");
    is_new_ = false;
  });
}

}  // namespace rondo
