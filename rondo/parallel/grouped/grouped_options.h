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

// Of strategy "grouped": within a group the options of ddp, between groups those of servers, to which each
// group is one worker.
struct GroupedOptions : DdpStrategyOptions, ServerStrategyOptions {
  int groups = 2;  // that the workers of TF_CONFIG form, in their order, all of one size
};

// This folder's strategies: what they are called and can be told (without libtorch), and how one is made.
struct GroupedFolder {
  using Options = GroupedOptions;                  // of strategy grouped
  static std::vector<Declaration> declarations();  // of strategy grouped
  // Makes the strategy for a rank of a group, whose context is of the ranks of its group
  // (init_options_of_group). Throws UsageError when TF_CONFIG describes no servers, or contradicts the
  // options or the context.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
