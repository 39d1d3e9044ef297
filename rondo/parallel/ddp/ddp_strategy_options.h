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

// Options of strategy "ddp". Between hosts a unit's gradients form a bucket. There bucket_bytes, if set, is
// both the size up to which units are fused and the segment size, and its default is segment_bytes.
struct DdpStrategyOptions : DdpOptions, CommunicationOptions {
  std::string codec = "none";  // name for make_comm_hook()
};

// Returns the options of bucket sizes and parameter checks that all strategies with buckets share.
OptionsOf<DdpOptions> bucket_table();
// Returns the table of all options with names on the command line.
OptionsOf<DdpStrategyOptions> ddp_strategy_table();

// Registration of strategy "ddp": declarations (without libtorch) and the factory.
struct DdpStrategyFactory {
  using Options = DdpStrategyOptions;              // options of strategy "ddp"
  static std::vector<Declaration> declarations();  // declarations of strategy "ddp"
  // Returns a new strategy of that name.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
