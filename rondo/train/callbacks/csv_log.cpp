#include "rondo/train/callbacks/csv_log.h"

#include "rondo/base/text.h"

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
  if (fields.size() < 2 || fields[1].empty() ||
      fields[1].find_first_not_of("0123456789") != std::string::npos)
    return {};
  return std::stoll(fields[1]);
}

}  // namespace rondo
