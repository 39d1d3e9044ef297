#pragma once

#include <filesystem>

#include "rondo/train/callback.h"

namespace rondo {

// Saves checkpoints at intervals, at the end of training, and when training is pre-empted.
class ModelCheckpoint final : public Callback {
 public:
  struct Options {
    std::filesystem::path directory = {};  // holds step-NNNNNNNN
    std::int64_t every_steps = 0;          // 0: at the end of each epoch
    int keep = 3;                          // newest ones that stay
  };
  explicit ModelCheckpoint(Options options) : options_(std::move(options)) {}

  std::string name() const override { return "model_checkpoint"; }
  void on_train_begin(Trainer& trainer, const FitPlan& plan) override;
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_epoch_end(Trainer& trainer, std::int64_t epoch) override;
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  void save(Trainer& trainer);

  Options options_;
  std::int64_t saved_step_ = -1;
};

}  // namespace rondo
