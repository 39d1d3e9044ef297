#pragma once

#include <string>

#include "rondo/base/bytes.h"
#include "rondo/options/declaration.h"

namespace rondo {

struct RegisteredBackend;

// Of engine "hierarchical".
struct HierarchicalOptions {
  std::string inner = "native";  // the engine inside a host; there is only this one
  std::string outer = "gloo";    // the engine between hosts, with brackets of its own where it takes options
  std::string codec = "none";    // of float32 all_reduces with SUM or AVG above 64 KiB
  // Ranks of a host that exchange with other hosts, at most; 0: as many as the smallest host has.
  int inter_host_ranks = 0;
  Bytes chunk_bytes = MiB(2);  // reduced, sent and broadcast at a time
  int window = 4;              // chunks under way
};

// This folder's engine: what it is called and can be told (without libtorch), and how one is made.
struct HierarchicalFolder {
  using Options = HierarchicalOptions;                      // of engine hierarchical
  static Declaration declaration();                         // of engine hierarchical
  static RegisteredBackend engine(const Options& options);  // makes communicators
};

}  // namespace rondo
