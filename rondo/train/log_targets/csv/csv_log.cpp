#include "rondo/train/log_targets/csv/csv_log.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "rondo/base/text.h"
#include "rondo/train/log_targets/csv/csv_target.h"

namespace rondo {

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

LogTarget CsvTarget::make(const Options& options, const LoggedRun& run) {
  const std::filesystem::path file =
      options.file.empty() ? run.directory / "epochs.csv" : std::filesystem::path(options.file);
  return {.callback = std::make_shared<CsvLog>(file)};
}

}  // namespace rondo
