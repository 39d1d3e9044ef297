#include "rondo/nn/optimizers/optimizer_options.h"

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
  table.add("optimizer", &Options::name, "Optimizer",
            one_of(std::vector<std::string>(std::begin(kOptimizerNames), std::end(kOptimizerNames))));
  table.add("lr", &Options::learning_rate, "Peak learning rate", zero_or_more()).is_common = true;
  table.add("weight-decay", &Options::weight_decay, "Weight decay (decoupled for adamw and lion)",
            zero_or_more());
  table.add("weight-decay-on", &Options::decayed,
            "Parameters with weight decay; matrices: all but biases and norms", one_of({"all", "matrices"}));
  table.add("momentum", &Options::momentum, "Momentum", within(0, 1)).needs =
      OptionNeed{"optimizer", {"lars", "sgd"}};
  table.add("beta1", &Options::beta1, "Decay rate of the mean of gradients", within(0, 1)).needs = adam;
  table.add("beta2", &Options::beta2, "Decay rate of the mean of squared gradients", within(0, 1)).needs =
      adam;
  table.add("lars-trust-coefficient", &Options::trust, "Trust coefficient of LARS", zero_or_more()).needs =
      lars;
  table.without_flags({"beta1", "beta2", "lars-trust-coefficient", "weight-decay-on"});
  return table;
}

}  // namespace rondo
