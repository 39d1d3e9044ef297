#pragma once

#include <filesystem>

#include "rondo/memory/tracker.h"
#include "rondo/train/callback.h"

namespace rondo {

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
