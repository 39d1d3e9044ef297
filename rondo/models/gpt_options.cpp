#include "rondo/models/gpt_options.h"

namespace rondo {
namespace {

OptionsOf<GptOptions> gpt_table() {
  using Options = GptOptions;
  OptionsOf<Options> table;
  table.begin_group("Model");
  table.include(transformer_table());
  table.add("experts", &Options::experts,
            "Experts in each block in place of its perceptron; 0 is none (docs/model_parallel.md)",
            zero_or_more());
  const OptionNeed experts{"experts"};
  table
      .add("experts-per-token", &Options::experts_per_token,
           "Experts that a token goes to: 1 or 2; default 1", within(1, 2))
      .needs = experts;
  table
      .add("capacity-factor", &Options::capacity_factor,
           "Tokens that an expert takes of a sample, in units of an even share; 0 is all; default 1.25",
           zero_or_more())
      .needs = experts;
  table
      .add("balance-loss", &Options::balance_loss,
           "Factor of the auxiliary loss that spreads tokens over experts; default 0.01", zero_or_more())
      .needs = experts;
  table.without_flags({"experts-per-token", "capacity-factor", "balance-loss"});
  table.include(init_table());
  return table;
}

}  // namespace

std::vector<Declaration> GptFamily::declarations() {
  const OptionsOf<GptOptions> table = gpt_table();
  return {{"gpt", "byte-level causal transformer", table},
          {"gpt-25m", "a gpt of 25.5 million parameters, the benchmarks' model", table},
          {"gpt-tiny", "a gpt that learns something in seconds on two slow cores", table}};
}

}  // namespace rondo
