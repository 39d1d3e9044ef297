#include "rondo/train/callbacks/learning_rate_scheduler.h"

namespace rondo {

LearningRateScheduler::LearningRateScheduler(ScheduleOptions options) : options_(std::move(options)) {
  options_.learning_rate = 1;
  schedule_ = make_schedule(options_);
}

void LearningRateScheduler::on_train_begin(Trainer&, const FitPlan& plan) {
  if (options_.total_steps == 0) options_.total_steps = plan.total_steps;
  schedule_ = make_schedule(options_);
}

nlohmann::json LearningRateScheduler::state() const {
  return {{"kind", options_.kind},
          {"warmup_steps", options_.warmup_steps},
          {"total_steps", options_.total_steps},
          {"end_fraction", options_.end_fraction},
          {"decay_every", options_.decay_every},
          {"decay_factor", options_.decay_factor}};
}

void LearningRateScheduler::restore(const nlohmann::json& state) {
  options_.kind = state.at("kind");
  options_.warmup_steps = state.at("warmup_steps");
  options_.total_steps = state.at("total_steps");
  options_.end_fraction = state.at("end_fraction");
  options_.decay_every = state.at("decay_every");
  options_.decay_factor = state.at("decay_factor");
}

}  // namespace rondo
