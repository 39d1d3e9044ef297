#include "rondo/train/callbacks/learning_rate_scheduler.h"

#include "rondo/base/json_strict.h"

namespace rondo {

LearningRateScheduler::LearningRateScheduler(ScheduleOptions options) : options_(std::move(options)) {
  options_.learning_rate = 1;
  make_schedule(options_);  // throws for invalid options
}

void LearningRateScheduler::on_train_begin(Trainer&, const FitOutline& outline) {
  if (options_.total_steps == 0) options_.total_steps = outline.schedule.length;
  make_schedule(options_);  // throws for invalid values of a damaged checkpoint
  position_ = outline.schedule;
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
  options_.kind = json_text(state.at("kind"), "\"kind\"");
  options_.warmup_steps = json_integer(state.at("warmup_steps"), "\"warmup_steps\"", 0);
  options_.total_steps = json_integer(state.at("total_steps"), "\"total_steps\"", 0);
  options_.end_fraction = json_number(state.at("end_fraction"), "\"end_fraction\"");
  options_.decay_every = json_integer(state.at("decay_every"), "\"decay_every\"");
  options_.decay_factor = json_number(state.at("decay_factor"), "\"decay_factor\"");
}

}  // namespace rondo
