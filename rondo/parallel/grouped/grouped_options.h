#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/parallel/ddp/ddp_strategy_options.h"
#include "rondo/parallel/server/server_options.h"

namespace rondo {

class Context;
class Strategy;

// Options of strategy "grouped": those of ddp apply within a group, those of servers between groups. Each
// group is one worker for the servers.
struct GroupedOptions : DdpStrategyOptions, ServerStrategyOptions {
  int groups = 2;  // number of groups of equal size that the workers form, in the order of TF_CONFIG
};

// Registration of strategy "grouped": declarations (without libtorch) and the factory.
struct GroupedStrategyFactory {
  using Options = GroupedOptions;                  // options of strategy "grouped"
  static std::vector<Declaration> declarations();  // declarations of strategy "grouped"
  // Returns a new strategy for a rank of a group; `context` has the ranks of its group
  // (init_options_of_group()). Throws UsageError if TF_CONFIG describes no servers, or contradicts the
  // options or the context.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
