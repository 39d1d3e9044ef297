#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/parallel/ddp/options.h"

namespace rondo {

class Context;
class Strategy;

// Of strategy "tpu".
struct TpuOptions : DdpOptions {
  // Rows and columns of the torus of ranks, "2x4"; auto: those of TPU_TOPOLOGY where it is of as many chips
  // as there are ranks, else as square as the ranks allow.
  std::string torus = "auto";
  std::string codec = "none";  // how float32 gradients travel, a name for collective::make_codec
};

// This folder's strategies: what they are called and can be told (without libtorch), and how one is made.
struct TpuFolder {
  using Options = TpuOptions;                      // of strategy tpu
  static std::vector<Declaration> declarations();  // of strategy tpu
  // Makes the strategy. Throws UsageError for a torus of another number of ranks than the job, naming both.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
