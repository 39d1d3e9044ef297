#include "rondo/train/training_options.h"

#include <iterator>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

void read_option(const std::string& text, const std::string& what, Decayed& value) {
  if (text != "all" && text != "matrices")
    throw UsageError(str(what, " ", text, ": expected all or matrices"));
  value = text == "all" ? Decayed::all : Decayed::matrices;
}

std::string option_text(Decayed value) { return value == Decayed::all ? "all" : "matrices"; }

OptionsOf<OptimizerOptions> optimizer_table() {
  using Options = OptimizerOptions;
  const OptionNeed adam{"optimizer", {"adam", "adamw", "lamb", "lion"}}, lars{"optimizer", {"lars"}};
  OptionsOf<Options> table;
  table.begin_group("Training");
  table.add("optimizer", &Options::name, "What moves the weights",
            one_of(std::vector<std::string>(std::begin(kOptimizerNames), std::end(kOptimizerNames))));
  table.add("lr", &Options::learning_rate, "Highest learning rate", zero_or_more()).is_common = true;
  table.add("weight-decay", &Options::weight_decay, "Decay of weights (adamw, lion: decoupled)",
            zero_or_more());
  table.add("weight-decay-on", &Options::decayed,
            "What --weight-decay is for; matrices: not biases and norms", one_of({"all", "matrices"}));
  table.add("momentum", &Options::momentum, "Momentum", within(0, 1)).needs =
      OptionNeed{"optimizer", {"lars", "sgd"}};
  table.add("beta1", &Options::beta1, "Decay of the mean of gradients", within(0, 1)).needs = adam;
  table.add("beta2", &Options::beta2, "Decay of the mean of squares", within(0, 1)).needs = adam;
  table
      .add("lars-trust-coefficient", &Options::trust,
           "Rate of a parameter whose gradient is as long as itself", zero_or_more())
      .needs = lars;
  table.without_flags({"beta1", "beta2", "lars-trust-coefficient", "weight-decay-on"});
  return table;
}

OptionsOf<ScheduleOptions> schedule_table() {
  using Options = ScheduleOptions;
  const OptionNeed step{"lr-schedule", {"step"}};
  OptionsOf<Options> table;
  table.begin_group("Training");
  table.add("lr-schedule", &Options::kind, "How the learning rate falls after warm-up",
            one_of({"constant", "cosine", "linear", "step"}));
  table.add("warmup-steps", &Options::warmup_steps, "Steps in which the learning rate rises from 0",
            zero_or_more());
  table.add("lr-min-ratio", &Options::end_fraction, "Rate at the end as a fraction of --lr", within(0, 1))
      .needs = OptionNeed{"lr-schedule", {"cosine", "linear"}};
  table.add("lr-step-size", &Options::decay_every, "Steps between drops", above_zero()).needs = step;
  table.add("lr-gamma", &Options::decay_factor, "What a drop multiplies the rate with", within(0, 1)).needs =
      step;
  table.without_flags({"lr-step-size", "lr-gamma"});
  return table;
}

}  // namespace rondo
