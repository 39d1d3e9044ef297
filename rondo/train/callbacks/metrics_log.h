#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "rondo/format/metrics.h"
#include "rondo/observe/memory.h"
#include "rondo/train/callback.h"

namespace rondo {

// Writes metrics.jsonl: a row for every rank and step, and one for every pass over the validation data. Rank
// 0 writes the one file; the ranks' rows travel there together, once in `every_steps` steps.
class MetricsLog final : public Callback {
 public:
  struct Options {
    std::filesystem::path file = {};
    std::int64_t every_steps = 10;
    // Bytes by this rank's own accounting, now or the largest so far; see MemoryMeter.
    std::function<Bytes()> accounted_bytes = {};
  };
  explicit MetricsLog(Options options);

  std::string name() const override { return "metrics_log"; }
  // Where the file has rows behind the step that training starts from (of a run that went on and died), they
  // go.
  void on_train_begin(Trainer& trainer, const FitPlan& plan) override;
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  // Figures of a step that differ between ranks.
  struct LocalFigures {
    double step_ms, compute_ms, comm_ms, exposed_comm_ms, peak_bytes, peak_rss_bytes, peak_pss_bytes;
  };
  void sample_memory();
  void flush(Trainer& trainer);

  Options options_;
  bool counts_tokens_ = false;
  std::optional<MetricsWriter> writer_;  // on rank 0
  std::vector<StepRecord> records_;      // not written yet, the same steps on all ranks
  std::vector<LocalFigures> figures_;    // of records_
  MemoryMeter memory_;
  std::optional<TimePoint> memory_sampled_;
  std::optional<TimePoint> pss_sampled_;
};

}  // namespace rondo
