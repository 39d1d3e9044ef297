#include "rondo/parallel/local_sgd/local_sgd_options.h"

namespace rondo {

std::vector<Declaration> LocalSgdStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.begin_group("Averages of parameters");
  table.add("sync-period", &Options::sync_period, "Steps that ranks take alone between two averages",
            above_zero());
  table.add("synchronous-steps", &Options::synchronous_steps,
            "First steps, in which gradients are averaged as under ddp", zero_or_more());
  table.add("outer-optimizer", &Options::outer,
            "What is made of an average: it is taken over, or an outer optimizer goes towards it (diloco)",
            one_of({"average", "diloco"}));
  const OptionNeed outer{"outer-optimizer", {"diloco"}};
  table.add("outer-lr", &Options::outer_learning_rate, "Learning rate of the outer optimizer", above_zero())
      .needs = outer;
  table
      .add("outer-momentum", &Options::outer_momentum, "Nesterov's momentum of the outer optimizer",
           within(0, 1))
      .needs = outer;
  table.add("sync-fragments", &Options::fragments,
            "Fragments of the model that are averaged at times of their own within the period", above_zero());
  table.add("sync-delay", &Options::sync_delay, "Steps that go on while an average travels", zero_or_more());
  table.without_flags({"synchronous-steps", "outer-lr", "outer-momentum", "sync-fragments", "sync-delay"});
  return {
      {.name = "local_sgd",
       .summary =
           "every rank trains alone; parameters are averaged once in a period (DiLoCo: --outer-optimizer)",
       .options = table}};
}

}  // namespace rondo
