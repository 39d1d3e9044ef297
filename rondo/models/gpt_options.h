#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/models/model_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

class ConfigReader;
class ModelSetup;
struct BuiltModel;

// Options of the models gpt, gpt-25m and gpt-tiny. Empty: the model's default.
struct GptOptions : TransformerOptions, InitOption {
  // Mixture of experts in each block, see GptConfig.
  std::optional<std::int64_t> experts = {};
  std::optional<std::int64_t> experts_per_token = {};
  std::optional<double> capacity_factor = {};
  std::optional<double> balance_loss = {};
};

// The GPTs; see model_families.h.
struct GptFamily {
  using Options = GptOptions;
  static std::vector<Declaration> declarations() {
    OptionsOf<Options> table;
    table.begin_group("Model");
    table.include(transformer_table());
    table.add("experts", &Options::experts,
              "Experts per block, in place of its MLP; 0: none (docs/model_parallel.md)", zero_or_more());
    const OptionNeed experts{"experts"};
    table
        .add("experts-per-token", &Options::experts_per_token, "Experts per token, 1 or 2; default 1",
             within(1, 2))
        .needs = experts;
    table
        .add("capacity-factor", &Options::capacity_factor,
             "Capacity of an expert relative to an even share of tokens; 0: unlimited; default 1.25",
             zero_or_more())
        .needs = experts;
    table
        .add("balance-loss", &Options::balance_loss,
             "Weight of the load-balancing loss of experts; default 0.01", zero_or_more())
        .needs = experts;
    table.without_flags({"experts-per-token", "capacity-factor", "balance-loss"});
    table.include(init_table());
    return {{"gpt", "byte-level causal transformer", table},
            {"gpt-25m", "a gpt of 25.5 million parameters, the benchmarks' model", table},
            {"gpt-tiny", "a tiny gpt that learns within seconds on two cores", table}};
  }
  static nlohmann::json defaults(const std::string& name);
  static BuiltModel make(const ConfigReader& config);
  static std::unique_ptr<ModelSetup> setup(const Options& options);
};

}  // namespace rondo
