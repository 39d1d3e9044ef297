#include "rondo/train/callbacks/epoch_rows.h"

#include <charconv>
#include <fstream>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/train/callbacks/csv_log.h"
#include "rondo/train/callbacks/json_log.h"
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

std::string CsvLog::header(const EpochRecord& record) const {
  std::string text = "epoch,step,loss,learning_rate,samples,elapsed_s";
  for (const auto& [metric, value] : record.validation) text += ",validation_" + metric;
  return text + "\n";
}

std::string CsvLog::line(const EpochRecord& record) const {
  std::string text = str(record.epoch, ",", record.step, ",", nlohmann::json(record.loss).dump(), ",",
                         nlohmann::json(record.learning_rate).dump(), ",", record.samples, ",",
                         nlohmann::json(record.elapsed_s).dump());
  for (const auto& [metric, value] : record.validation) text += "," + nlohmann::json(value).dump();
  return text;
}

std::optional<std::int64_t> CsvLog::step_of(const std::string& line) const {
  const std::vector<std::string> fields = split(line, ',');
  if (fields.size() < 2) return {};
  std::int64_t step = 0;
  const char* const end = fields[1].data() + fields[1].size();
  const auto [stopped, error] = std::from_chars(fields[1].data(), end, step);
  if (error != std::errc() || stopped != end || step < 0) return {};
  return step;
}

std::string JsonLog::line(const EpochRecord& record) const {
  return nlohmann::ordered_json{{"epoch", record.epoch},
                                {"step", record.step},
                                {"loss", record.loss},
                                {"learning_rate", record.learning_rate},
                                {"samples", record.samples},
                                {"elapsed_s", record.elapsed_s},
                                {"validation", record.validation}}
      .dump();
}

std::optional<std::int64_t> JsonLog::step_of(const std::string& line) const {
  try {
    const auto row = parse_json_strict(line, "a line of the log");
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) return {};
    return row["step"].get<std::int64_t>();
  } catch (const DataError&) {
    return {};
  }
}

}  // namespace rondo
