#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

class Context;
class Strategy;

// Of strategy "pipeline". Every rank must give the same options.
struct PipelineOptions {
  std::string schedule = "1f1b";             // gpipe, 1f1b, interleaved, zb_h1, zb_v
  std::int64_t micro_batches = 4;            // into which each batch of a replica is cut
  int chunks = 2;                            // interleaved: stages of a rank
  std::vector<std::string> stage_cuts = {};  // first layer of every stage but the first; empty: balanced
};

// This folder's strategy: what it is called and can be told (without libtorch), and how it is made.
struct PipelineFolder {
  using Options = PipelineOptions;                 // of strategy pipeline
  static std::vector<Declaration> declarations();  // of strategy pipeline
  // Makes it: along context.mesh()'s dimension "pipeline" or, without a mesh, of all ranks. Replicas are
  // trained by ddp.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
