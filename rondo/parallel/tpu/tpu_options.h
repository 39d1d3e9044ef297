#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/parallel/ddp/options.h"

namespace rondo {

class Context;
class Strategy;

// Options of strategy "tpu".
struct TpuOptions : DdpOptions {
  // Rows and columns of the torus of ranks, such as "2x4", or "auto": see find_torus().
  std::string torus = "auto";
  std::string codec = "none";  // codec of float32 gradients, a name for collective::make_codec()
};

// Registration of strategy "tpu": declarations (without libtorch) and the factory.
struct TpuStrategyFactory {
  using Options = TpuOptions;                      // options of strategy "tpu"
  static std::vector<Declaration> declarations();  // declarations of strategy "tpu"
  // Returns a new strategy. Throws UsageError with both numbers for a torus of another number of ranks than
  // the job's.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
