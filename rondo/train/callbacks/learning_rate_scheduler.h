#pragma once

#include "rondo/train/callback.h"
#include "rondo/train/schedule.h"

namespace rondo {

// Warm-up and a fall of the learning rate as a callback: multiplies the optimizer's own rate. Unlike
// FitOptions::named_schedule its figures are part of the checkpoint: a resumed run goes on along the curve it
// began with, also where it is told of more epochs, or of other figures. On other ranks, with another batch
// size or accumulation it goes on from where it was on that curve (SchedulePosition).
class LearningRateScheduler final : public Callback {
 public:
  // `options` but for the learning rate, which is the optimizer's; total_steps 0 is the length of the fit
  // that begins. Throws UsageError as make_schedule() does.
  explicit LearningRateScheduler(ScheduleOptions options);

  std::string name() const override { return "learning_rate_scheduler"; }
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_begin(Trainer&, std::int64_t step) override {
    factor_ = scheduled_rate(options_, position_.at(step));
  }
  double learning_rate_factor() const override { return factor_; }
  nlohmann::json state() const override;
  void restore(const nlohmann::json& state) override;

 private:
  ScheduleOptions options_;
  SchedulePosition position_;
  double factor_ = 1;
};

}  // namespace rondo
