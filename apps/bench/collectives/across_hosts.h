#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"

namespace rondo::bench {

// What `rondo bench collectives --hosts 2` measures: all_reduce of float32 over a shaped link, by rondo's
// hierarchical engine with each codec and by Gloo, with ranks numbered host by host and in turns.
struct AcrossHosts {
  std::string rate = "1gbit";
  int ranks = 4;  // half of them on each host
  std::vector<Bytes> sizes;
  std::vector<std::string> codecs;  // "none" included
  std::string options;              // of the hierarchical engine, as in "inter_host_ranks=1"
  bool peers = false;
  bool deterministic = false;  // sums in the order of ranks
  int rounds = 7;
  bool table = true;
};

// Rows as those of the other collectives, with `hosts` 2 and also `rate` and `rank_order`. Rank by rank in
// processes of this program, in namespaces made for this. Throws Error when the machine does not allow it.
nlohmann::ordered_json run_across_hosts(const AcrossHosts& settings);

}  // namespace rondo::bench
