#pragma once

#include "rondo/train/callback.h"
#include "rondo/train/schedule.h"

namespace rondo {

// A callback with warm-up and decay of the learning rate: it multiplies the optimizer's own rate. Unlike
// FitOptions::named_schedule its options are saved in checkpoints. So a resumed run continues its original
// curve, even if it is given more epochs or other options. With other ranks, batch size or accumulation it
// continues from its position on that curve (SchedulePosition).
class LearningRateScheduler final : public Callback {
 public:
  // Ignores the learning rate of `options`: the optimizer's applies. total_steps 0 means the length of the
  // fit that begins. Throws UsageError as make_schedule() does.
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
