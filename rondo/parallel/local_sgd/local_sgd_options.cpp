#include "rondo/parallel/local_sgd/local_sgd_options.h"

namespace rondo {

std::vector<Declaration> LocalSgdStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.begin_group("Parameter averaging");
  table.add("sync-period", &Options::sync_period, "Local steps between two averages", above_zero());
  table.add("synchronous-steps", &Options::synchronous_steps,
            "First steps, which average gradients as ddp does", zero_or_more());
  table.add("outer-optimizer", &Options::outer,
            "Use of an average: it replaces the parameters, or guides an outer optimizer (diloco)",
            one_of({"average", "diloco"}));
  const OptionNeed outer{"outer-optimizer", {"diloco"}};
  table.add("outer-lr", &Options::outer_learning_rate, "Learning rate of the outer optimizer", above_zero())
      .needs = outer;
  table
      .add("outer-momentum", &Options::outer_momentum, "Nesterov's momentum of the outer optimizer",
           within(0, 1))
      .needs = outer;
  table.add("sync-fragments", &Options::fragments,
            "Fragments of the model, which are averaged at different steps of the period", above_zero());
  table.add("sync-delay", &Options::sync_delay, "Steps that overlap with the communication of an average",
            zero_or_more());
  table.without_flags({"synchronous-steps", "outer-lr", "outer-momentum", "sync-fragments", "sync-delay"});
  return {
      {.name = "local_sgd",
       .summary = "every rank trains alone; parameters are averaged periodically (DiLoCo: --outer-optimizer)",
       .options = table}};
}

}  // namespace rondo
