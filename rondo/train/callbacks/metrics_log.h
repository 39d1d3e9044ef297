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

// Writes metrics.jsonl: a row for every rank and step, and one for every pass over the validation data; in a
// long run rows stand for several steps (format/metrics.h). Rank 0 writes the one file; the ranks'
// rows travel there together, once in `every_steps` steps. Rows that cannot be written (side_output.h) are
// kept for the next write.
class MetricsLog final : public Callback {
 public:
  // Output file and intervals.
  struct Options {
    std::filesystem::path file = {};  // metrics.jsonl of a run
    std::int64_t every_steps = 10;    // steps whose rows travel together
    // Bytes by this rank's memory tracker, now or the largest so far; see MemoryMeter.
    std::function<Bytes()> tracked_bytes = {};
    // Peak of a rank in operations per second for "mfu" of steps (rondo/train/utilisation.h); 0: a measured
    // peak. Empty: no "mfu".
    std::optional<double> peak_flops = {};
    // Called on rank 0 with each written group of rows: the rows of all ranks of a step, or one row of a
    // validation.
    std::vector<std::function<void(std::span<const MetricsRow>)>> observers = {};
  };
  // The file is opened when training begins.
  explicit MetricsLog(Options options);

  std::string name() const override { return "metrics_log"; }
  // Removes rows after the step that training starts from (of a run that died later), and those of a
  // validation that is due again.
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_begin(Trainer&, std::int64_t) override {
    if (utilisation_) utilisation_->begin_step();
  }
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  // Rows that lie in memory would be lost with the process, and a resumed run does not write them again.
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
  std::vector<StepRecord> records_;             // not written yet, the same steps on all ranks
  std::vector<LocalFigures> figures_;           // figures of records_
  std::optional<Utilisation> utilisation_;
  MemoryMeter memory_;
  std::optional<TimePoint> memory_sampled_;
  std::optional<TimePoint> pss_sampled_;
};

}  // namespace rondo
