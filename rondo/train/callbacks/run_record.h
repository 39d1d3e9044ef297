#pragma once

#include <filesystem>

#include "rondo/format/run_directory.h"
#include "rondo/memory/tracker.h"
#include "rondo/train/callback.h"

namespace rondo {

// A callback that adds the start of training to run.json. Rank 0 writes.
class RunRecord final : public Callback {
 public:
  // `start` has what the program knows of the training; the callback sets strategy, backend, ranks and steps.
  // A resumed run keeps its labels except those that `labels` changes.
  RunRecord(std::filesystem::path run_directory, RunStart start, RunLabels labels = {})
      : run_directory_(std::move(run_directory)), start_(std::move(start)), labels_(std::move(labels)) {}

  std::string name() const override { return "run_record"; }
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;

 private:
  std::filesystem::path run_directory_;
  RunStart start_;
  RunLabels labels_;
};

// A callback that writes memory.json when training ends: for every rank the peak of its process's tracked
// memory, the time of the peak, and its parts by unit and category. Rank 0 writes. A fit without steps does
// not change the file.
class MemoryReport final : public Callback {
 public:
  explicit MemoryReport(std::filesystem::path run_directory) : run_directory_(std::move(run_directory)) {}

  std::string name() const override { return "memory_report"; }
  void on_step_end(Trainer&, const StepRecord&) override { has_stepped_ = true; }
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  std::filesystem::path run_directory_;
  bool has_stepped_ = false;
};

// Returns a peak in the form of memory.json, without the rank.
nlohmann::json to_json(const MemoryPeak& peak);

}  // namespace rondo
