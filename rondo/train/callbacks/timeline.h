#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "rondo/format/trace.h"
#include "rondo/train/callback.h"
#include "rondo/train/callbacks/side_output.h"

namespace rondo {

// A callback that writes trace.json, a timeline of each rank for Perfetto or chrome://tracing. Pass sink() to
// FitOptions::trace. A fit without steps does not change the file.
class Timeline final : public Callback {
 public:
  // Writes trace.json to `run_directory`.
  explicit Timeline(std::filesystem::path run_directory) : run_directory_(std::move(run_directory)) {}

  std::string name() const override { return "timeline"; }
  // Returns the sink for FitOptions::trace; valid while this object lives.
  std::function<void(TraceSpan)> sink();
  // Returns the sink for FitOptions::trace_memory; valid while this object lives.
  std::function<void(const TraceCounter&)> memory_sink();
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_begin(Trainer& trainer, std::int64_t step) override;
  // Merges the ranks' parts on one clock.
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  std::filesystem::path run_directory_;
  std::unique_ptr<TraceWriter> writer_;  // from the first step on
  SideOutput output_{                    // This rank's part; its existence is not checked at every event.
                     std::filesystem::path()};
  bool has_stepped_ = false;
  ClockReading clock_at_begin_;
};

}  // namespace rondo
