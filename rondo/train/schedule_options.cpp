#include "rondo/train/schedule_options.h"

namespace rondo {

OptionsOf<ScheduleOptions> schedule_table() {
  using Options = ScheduleOptions;
  const OptionNeed step{"lr-schedule", {"step"}};
  OptionsOf<Options> table;
  table.begin_group("Training");
  table.add("lr-schedule", &Options::kind, "Schedule of the learning rate after warm-up",
            one_of({"constant", "cosine", "linear", "step"}));
  table.add("warmup-steps", &Options::warmup_steps, "Warm-up steps, in which the learning rate rises from 0",
            zero_or_more());
  table.add("lr-min-ratio", &Options::end_fraction, "Final learning rate as a fraction of --lr", within(0, 1))
      .needs = OptionNeed{"lr-schedule", {"cosine", "linear"}};
  table.add("lr-step-size", &Options::decay_every, "Steps between drops of the learning rate", above_zero())
      .needs = step;
  table.add("lr-gamma", &Options::decay_factor, "Factor of the learning rate at each drop", within(0, 1))
      .needs = step;
  table.without_flags({"lr-step-size", "lr-gamma"});
  return table;
}

}  // namespace rondo
