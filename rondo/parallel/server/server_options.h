#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

class Context;
class Strategy;

// Of strategy "parameter_server".
struct ServerStrategyOptions {
  std::optional<int> ps = {};  // servers that `rondo train` starts; with TF_CONFIG that many must be there
  std::optional<int> workers = {};        // the same of workers
  std::string server_mode = "async";      // async, sync or ssp
  int staleness = 0;                      // ssp: steps that the fastest worker may be ahead of the slowest
  int backup_workers = 0;                 // sync: so many of the slowest are not waited for
  std::string partitioner = "none";       // see rondo/server/placement.h
  std::string placement = "round_robin";  // of variables on servers; or by_size
  std::string push_codec = "none";        // of gradients on their way to servers, a name for make_codec
};

// Which of its fields have names; `workers` and `push_codec` are the strategy's own.
OptionsOf<ServerStrategyOptions> server_table();

// This folder's strategies: what they are called and can be told (without libtorch), and how one is made.
struct ServerFolder {
  using Options = ServerStrategyOptions;           // of strategy parameter_server
  static std::vector<Declaration> declarations();  // of strategy parameter_server
  // Makes the strategy for a worker that TF_CONFIG describes. Throws UsageError when there is none, or when
  // it contradicts the options.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
