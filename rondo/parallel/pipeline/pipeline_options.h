#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

class Context;
class Strategy;

// Options of strategy "pipeline". All ranks must pass the same options.
struct PipelineOptions {
  std::string schedule = "1f1b";             // gpipe, 1f1b, interleaved, zb_h1, zb_v
  std::int64_t micro_batches = 4;            // number of micro-batches per batch of a replica
  int chunks = 2;                            // interleaved: number of stages per rank
  std::vector<std::string> stage_cuts = {};  // first layer of each stage except the first; empty: balanced
};

// Registration of strategy "pipeline": declarations (without libtorch) and the factory.
struct PipelineStrategyFactory {
  using Options = PipelineOptions;                 // options of strategy "pipeline"
  static std::vector<Declaration> declarations();  // declarations of strategy "pipeline"
  // Returns a new strategy along the dimension "pipeline" of context.mesh(), or over all ranks without a
  // mesh. ddp trains the replicas.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
