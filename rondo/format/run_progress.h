#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace rondo {

// How far a training is now: what its own terminal shows, for programs that watch the run. metrics.jsonl has
// rows of every --log-every steps only.
struct RunProgress {
  std::int64_t step = 0;  // steps done
  std::int64_t total_steps = 0;
  double epoch = 0;  // epochs done, with the fraction of the current one
  double loss = 0;
  double learning_rate = 0;
  double rate = 0;               // units per second over all ranks
  std::string unit = "samples";  // "samples" or "tokens"
  double elapsed_s = 0;          // training time, including resumed runs
  // Batches done of the validation in progress; 0 of 0: none.
  std::int64_t validated = 0, to_validate = 0;
};

// The file RUN/progress.json, which is overwritten in place without waiting for the disk. One thread uses an
// object.
class RunProgressFile {
 public:
  // Errors are ignored: a training does not end because nobody can watch it.
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
