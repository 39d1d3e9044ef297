#include "rondo/format/run_progress.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/json_strict.h"

namespace rondo {
namespace {

constexpr const char* kFileName = "progress.json";
// Every record has this size, so that a shorter record overwrites a longer one completely.
constexpr std::size_t kRecordBytes = 512;
constexpr Bytes kLargestFile = KiB(4);

}  // namespace

RunProgressFile::RunProgressFile(const std::filesystem::path& run_directory)
    : descriptor_(open((run_directory / kFileName).c_str(),
                       O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666)) {
  struct stat status {};
  if (descriptor_ < 0 || (fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode))) return;
  close(descriptor_);  // not a regular file: a named pipe or a device
  descriptor_ = -1;
}

RunProgressFile::~RunProgressFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void RunProgressFile::write(const RunProgress& progress) {
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  std::string record = nlohmann::ordered_json{{"step", progress.step},
                                              {"total_steps", progress.total_steps},
                                              {"epoch", number(progress.epoch)},
                                              {"loss", number(progress.loss)},
                                              {"learning_rate", number(progress.learning_rate)},
                                              {"rate", number(progress.rate)},
                                              {"unit", progress.unit},
                                              {"elapsed_s", number(progress.elapsed_s)},
                                              {"validated", progress.validated},
                                              {"to_validate", progress.to_validate}}
                           .dump();
  if (descriptor_ < 0 || record.size() >= kRecordBytes) return;
  record.resize(kRecordBytes - 1, ' ');
  record += '\n';
  const ssize_t ignored = pwrite(descriptor_, record.data(), record.size(), 0);
  static_cast<void>(ignored);
}

std::optional<RunProgress> read_run_progress(const std::filesystem::path& run_directory) {
  try {
    const nlohmann::ordered_json record =
        parse_json_strict(read_regular_file(run_directory / kFileName, kLargestFile), kFileName);
    const auto number = [&](const char* key) {
      return record.at(key).is_null() ? std::nan("") : record.at(key).get<double>();
    };
    return RunProgress{.step = record.at("step"),
                       .total_steps = record.at("total_steps"),
                       .epoch = number("epoch"),
                       .loss = number("loss"),
                       .learning_rate = number("learning_rate"),
                       .rate = number("rate"),
                       .unit = record.at("unit"),
                       .elapsed_s = number("elapsed_s"),
                       .validated = record.at("validated"),
                       .to_validate = record.at("to_validate")};
  } catch (const Error&) {
    return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace rondo
