#include "rondo/train/evaluate_checkpoints.h"

#include <time.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/process_status.h"
#include "rondo/base/text.h"
#include "rondo/env/environment.h"
#include "rondo/env/launcher_files.h"
#include "rondo/format/checkpoint_files.h"
#include "rondo/format/metrics.h"
#include "rondo/format/run_directory.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookAgain = std::chrono::milliseconds(200);

// Returns this process's start on the clock of file times: a concurrent training may end before the first
// poll.
fs::file_time_type process_start() {
  const auto now = fs::file_time_type::clock::now();
  const auto status = ProcessStatus::read_own();
  timespec up{};
  if (!status || clock_gettime(CLOCK_BOOTTIME, &up) != 0) return now;
  const auto ticks = static_cast<double>(status->field(22));  // clock ticks between boot and process start
  const double age = static_cast<double>(up.tv_sec) + static_cast<double>(up.tv_nsec) * 1e-9 -
                     ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return now - std::chrono::duration_cast<fs::file_time_type::duration>(std::chrono::duration<double>(age));
}

// A watch on the training that writes into a run directory.
class TrainingWatch {
 public:
  TrainingWatch(fs::path run, Duration patience)
      : run_(std::move(run)),
        patience_(patience),
        deadline_(Deadline::after(patience)),
        begun_(process_start()),
        workers_(env::lookup(env::process_environment(), env::kEndedWorkersVariable).value_or("")) {}

  // Returns whether the training has ended. `newest` may be of a training that began and ended between two
  // polls.
  bool is_over(const std::optional<CheckpointEntry>& newest) {
    if (RunLock::is_held(run_)) {
      seen_ = true;
      return false;
    }
    std::error_code gone;
    if (seen_ || (newest && fs::last_write_time(newest->path, gone) > begun_)) return true;
    if (workers_.all()) return true;
    if (!deadline_.passed()) {
      if (newest && !std::exchange(told_, true)) {
        log::warning("no training is running in ", run_.string(), "; its newest checkpoint, of step ",
                     newest->step, ", is evaluated; waiting for ", to_string(patience_),
                     " for a training to start");
      }
      return false;
    }
    if (newest) return true;
    throw TimeoutError(str("the evaluator timed out waiting for a training in ", run_.string()), {});
  }

 private:
  fs::path run_;
  Duration patience_;
  Deadline deadline_;
  fs::file_time_type begun_;
  env::EndedWorkers workers_;
  bool seen_ = false;
  bool told_ = false;
};

// Returns nullopt if a stop was requested during the evaluation.
std::optional<std::map<std::string, double>> evaluated_unless_stopped(
    Trainer& trainer, const Dataset& data, const EvaluateCheckpointsOptions& options) {
  bool stopped = false;
  EvaluateOptions evaluate = options.evaluate;
  evaluate.stop_requested = [&] {
    for (const auto* const requested : {&options.stop_requested, &options.evaluate.stop_requested})
      stopped = stopped || (*requested && (*requested)());
    return stopped;
  };
  std::map<std::string, double> figures = trainer.evaluate(data, evaluate);
  if (stopped) return std::nullopt;
  return figures;
}

}  // namespace

CheckpointEvaluation evaluate_checkpoints(Trainer& trainer, const Dataset& data,
                                          const EvaluateCheckpointsOptions& options) {
  const fs::path checkpoints = options.run / "checkpoints";
  TrainingWatch training(options.run, options.patience);
  std::optional<MetricsWriter> writer;
  CheckpointEvaluation last;
  for (;;) {
    if (options.stop_requested && options.stop_requested()) return last;
    // This order finds the last checkpoint of a training that has ended.
    std::optional<CheckpointEntry> newest = newest_checkpoint(checkpoints);
    const bool over = training.is_over(newest);
    if (over) newest = newest_checkpoint(checkpoints);
    if (newest && newest->step != last.step) {
      try {
        trainer.load_weights(newest->path);
      } catch (const Error&) {
        if (!fs::exists(newest->path)) continue;  // replaced by newer ones
        throw;
      }
      auto figures = evaluated_unless_stopped(trainer, data, options);
      if (!figures) return last;
      last = {.step = newest->step, .figures = std::move(*figures)};
      if (!writer) writer.emplace(options.run / "metrics.evaluator.jsonl");
      writer->append(validation_row(last.step, last.figures));
      if (options.told) options.told(last.step, last.figures);
      continue;
    }
    if (over) return last;
    std::this_thread::sleep_for(kLookAgain);
  }
}

}  // namespace rondo
