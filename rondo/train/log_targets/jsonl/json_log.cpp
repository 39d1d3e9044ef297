#include "rondo/train/log_targets/jsonl/json_log.h"

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/train/log_targets/jsonl/jsonl_target.h"

namespace rondo {

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

LogTarget JsonlTarget::make(const Options& options, const LoggedRun& run) {
  const std::filesystem::path file =
      options.file.empty() ? run.directory / "epochs.jsonl" : std::filesystem::path(options.file);
  return {.callback = std::make_shared<JsonLog>(file)};
}

}  // namespace rondo
