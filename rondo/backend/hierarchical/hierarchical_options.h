#pragma once

#include <string>

#include "rondo/base/bytes.h"
#include "rondo/options/declaration.h"

namespace rondo {

struct RegisteredBackend;

// Options of engine "hierarchical".
struct HierarchicalOptions {
  std::string inner = "native";  // engine inside a host; "native" is the only one
  std::string outer = "gloo";    // engine between hosts, with its options in brackets
  std::string codec = "none";    // applied to float32 all_reduces with SUM or AVG above 64 KiB
  // Largest number of ranks of a host that exchange with other hosts; 0: as many as the smallest host has.
  int inter_host_ranks = 0;
  Bytes chunk_bytes = MiB(2);  // reduced, sent and broadcast at a time
  int window = 4;              // chunks in flight
};

// The engine of this folder: its declaration (without libtorch) and its factory.
struct HierarchicalEngineFactory {
  using Options = HierarchicalOptions;                      // options of engine hierarchical
  static Declaration declaration();                         // declares engine hierarchical
  static RegisteredBackend engine(const Options& options);  // makes communicators
};

}  // namespace rondo
