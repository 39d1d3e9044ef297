#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

class Context;
class Strategy;

// Options of strategy "parameter_server".
struct ServerStrategyOptions {
  // Number of servers that `rondo train` starts; must match TF_CONFIG if that is set.
  std::optional<int> ps = {};
  std::optional<int> workers = {};    // number of workers, likewise
  std::string server_mode = "async";  // async, sync or ssp
  int staleness = 0;                  // ssp: maximum lead of the fastest worker over the slowest, in steps
  int backup_workers = 0;             // sync: number of slowest workers that are not waited for
  std::string partitioner = "none";   // see rondo/server/placement.h
  std::string placement = "round_robin";  // of variables on servers: round_robin or by_size
  std::string push_codec = "none";        // codec of pushed gradients, a name for make_codec()
};

// Returns the options with names on the command line, except `workers` and `push_codec`, which
// ServerStrategyFactory adds.
OptionsOf<ServerStrategyOptions> server_table();

// Registration of strategy "parameter_server": declarations (without libtorch) and the factory.
struct ServerStrategyFactory {
  using Options = ServerStrategyOptions;           // options of strategy "parameter_server"
  static std::vector<Declaration> declarations();  // declarations of strategy "parameter_server"
  // Returns a new strategy for a worker that TF_CONFIG describes. Throws UsageError if TF_CONFIG describes
  // none, or contradicts the options.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
