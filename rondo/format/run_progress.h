#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace rondo {

// The current progress of a training, as displayed by the training itself, for programs that watch the run.
// metrics.jsonl only has a row every --log-every steps.
struct RunProgress {
  std::int64_t step = 0;  // steps done
  std::int64_t total_steps = 0;
  double epoch = 0;  // epochs done, with the fraction of the current one
  double loss = 0;
  double learning_rate = 0;
  double rate = 0;               // samples or tokens per second over all ranks
  std::string unit = "samples";  // "samples" or "tokens"
  double elapsed_s = 0;          // training time, including resumed runs
  // Number of batches done and total number of batches of the validation in progress; both 0: none.
  std::int64_t validated = 0, to_validate = 0;
};

// The file RUN/progress.json, which is overwritten in place without waiting for the disk. One thread uses an
// object.
class RunProgressFile {
 public:
  // Ignores errors: training must not fail because its progress cannot be displayed.
  explicit RunProgressFile(const std::filesystem::path& run_directory);
  ~RunProgressFile();
  RunProgressFile(const RunProgressFile&) = delete;
  RunProgressFile& operator=(const RunProgressFile&) = delete;

  void write(const RunProgress& progress);

 private:
  int descriptor_;
};

// Returns the content of RUN/progress.json; empty if there is none, or if it is being written or damaged.
std::optional<RunProgress> read_run_progress(const std::filesystem::path& run_directory);

}  // namespace rondo
