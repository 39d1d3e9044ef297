#pragma once

#include <filesystem>

#include "rondo/format/run_directory.h"
#include "rondo/memory/tracker.h"
#include "rondo/train/callback.h"

namespace rondo {

// Adds to run.json what was started when training begins: when, where, by which command and version, with
// which strategy on how many ranks. Rank 0 writes.
class RunRecord final : public Callback {
 public:
  RunRecord(std::filesystem::path run_directory, Provenance made)
      : run_directory_(std::move(run_directory)), made_(std::move(made)) {}

  std::string name() const override { return "run_record"; }
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;

 private:
  std::filesystem::path run_directory_;
  Provenance made_;
};

// Writes memory.json when training ends: for every rank the peak of its process's tracked memory, its moment,
// and what it consisted of by unit and category. Rank 0 writes. A fit without steps leaves the file as it is.
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

// A peak as memory.json has it, without the rank.
nlohmann::json to_json(const MemoryPeak& peak);

}  // namespace rondo
