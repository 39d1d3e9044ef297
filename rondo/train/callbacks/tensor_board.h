#pragma once

#include <filesystem>
#include <optional>

#include "rondo/format/tensorboard.h"
#include "rondo/train/callback.h"

namespace rondo {

// Writes events.out.tfevents.* for TensorBoard on rank 0.
class TensorBoard final : public Callback {
 public:
  struct Options {
    std::filesystem::path directory = {};
    std::int64_t every_steps = 10;
  };
  explicit TensorBoard(Options options) : options_(std::move(options)) {}

  std::string name() const override { return "tensor_board"; }
  void on_train_begin(Trainer& trainer, const FitPlan& plan) override;
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;

 private:
  void add(const std::string& tag, double value, std::int64_t step);

  Options options_;
  std::string unit_;
  std::int64_t total_steps_ = 0;
  std::optional<EventWriter> writer_;  // on rank 0
};

}  // namespace rondo
