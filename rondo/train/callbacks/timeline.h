#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "rondo/format/trace.h"
#include "rondo/train/callback.h"
#include "rondo/train/callbacks/side_output.h"

namespace rondo {

// Writes trace.json: what each rank did when, for Perfetto or chrome://tracing. Give sink() to
// FitOptions::trace. A fit without steps leaves the file as it is.
class Timeline final : public Callback {
 public:
  // Trace.json lies in `run_directory`.
  explicit Timeline(std::filesystem::path run_directory) : run_directory_(std::move(run_directory)) {}

  std::string name() const override { return "timeline"; }
  // Valid as long as this object.
  std::function<void(TraceSpan)> sink();
  // Likewise, for FitOptions::trace_memory.
  std::function<void(const TraceCounter&)> memory_sink();
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_begin(Trainer& trainer, std::int64_t step) override;
  // Joins the ranks' parts, on one clock.
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  std::filesystem::path run_directory_;
  std::unique_ptr<TraceWriter> writer_;  // from the first step on
  SideOutput output_{
      std::filesystem::path()};  // of this rank's part, which is not looked at with every event
  bool has_stepped_ = false;
  ClockReading clock_at_begin_;
};

}  // namespace rondo
