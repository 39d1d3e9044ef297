#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/parallel/ddp/options.h"
#include "rondo/parallel/schedule/communication_options.h"

namespace rondo {

class Context;
class Strategy;

// Of strategy "ddp". Between hosts a unit's gradients are a bucket: there bucket_bytes, where it is given, is
// what units are joined up to and cut into, and its default is block_bytes.
struct DdpStrategyOptions : DdpOptions, CommunicationOptions {
  std::string codec = "none";  // how gradients travel, a name for make_comm_hook
};

// The size of buckets and the check of what they make, of every strategy with buckets.
OptionsOf<DdpOptions> bucket_table();
// Which of its fields have names.
OptionsOf<DdpStrategyOptions> ddp_strategy_table();

// This folder's strategies: what they are called and can be told (without libtorch), and how one is made.
struct DdpFolder {
  using Options = DdpStrategyOptions;              // of strategy ddp
  static std::vector<Declaration> declarations();  // of strategy ddp
  // Makes the strategy of that name.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
