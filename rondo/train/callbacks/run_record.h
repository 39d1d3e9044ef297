#pragma once

#include <filesystem>

#include "rondo/format/run_directory.h"
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

}  // namespace rondo
