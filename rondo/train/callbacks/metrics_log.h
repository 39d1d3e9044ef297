#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/base/time.h"
#include "rondo/format/metrics.h"
#include "rondo/observe/memory_observer.h"
#include "rondo/train/callback.h"
#include "rondo/train/callbacks/side_output.h"
#include "rondo/train/utilisation.h"

namespace rondo {

// A callback that writes metrics.jsonl: a row for each rank and step, and one for each pass over the
// validation data. In a long run a row covers several steps (format/metrics.h). Rank 0 writes the file; the
// ranks' rows are gathered there once in `every_steps` steps. Rows that cannot be written (side_output.h) are
// kept for the next write.
class MetricsLog final : public Callback {
 public:
  // Output file and intervals.
  struct Options {
    std::filesystem::path file = {};  // the run's metrics.jsonl
    std::int64_t every_steps = 10;    // number of steps whose rows are gathered together
    // Bytes according to this rank's memory tracker, now or at the peak so far; see MemoryMeter.
    std::function<Bytes()> tracked_bytes = {};
    // Peak of a rank in operations per second, for "mfu" of steps (rondo/train/utilisation.h). 0: measure the
    // peak. Empty: no "mfu".
    std::optional<double> peak_flops = {};
    // Called on rank 0 with each written group of rows: the rows of all ranks of a step, or one row of a
    // validation.
    std::vector<std::function<void(std::span<const MetricsRow>)>> observers = {};
  };
  // The file is opened when training begins.
  explicit MetricsLog(Options options);

  std::string name() const override { return "metrics_log"; }
  // Removes rows of steps after the first step of this training, left by a run that died later, and rows of a
  // validation that will be repeated.
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_begin(Trainer&, std::int64_t) override {
    if (utilisation_) utilisation_->begin_step();
  }
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  // Writes buffered rows: they would be lost with the process, and a resumed run does not write them again.
  void before_save(Trainer& trainer) override {
    flush(trainer);
    if (writer_) output_.write([this] { writer_->flush(); });
  }
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  // Figures of a step that differ between ranks.
  struct LocalFigures {
    double loss, gradient_norm, utilisation, rate, step_ms, compute_ms, comm_ms, exposed_comm_ms, peak_bytes,
        peak_rss_bytes, peak_pss_bytes;
  };
  void sample_memory();
  void flush(Trainer& trainer);

  Options options_;
  bool counts_tokens_ = false;
  std::optional<ThinnedMetricsWriter> writer_;  // on rank 0
  SideOutput output_;                           // its file
  std::vector<StepRecord> records_;             // steps that are not written yet, the same on all ranks
  std::vector<LocalFigures> figures_;           // figures of records_
  std::optional<Utilisation> utilisation_;
  MemoryMeter memory_;
  std::optional<TimePoint> memory_sampled_;
  std::optional<TimePoint> pss_sampled_;
};

}  // namespace rondo
