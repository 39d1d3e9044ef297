#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/parallel/ddp/options.h"

namespace rondo {

class Context;
class Strategy;

// Options of strategy "expert". They apply to the averages of both dense and expert gradients.
struct ExpertOptions : DdpOptions {
  std::string codec = "none";  // codec of gradients, a name for make_comm_hook()
};

// Registration of strategy "expert": declarations (without libtorch) and the factory.
struct ExpertStrategyFactory {
  using Options = ExpertOptions;                   // options of strategy "expert"
  static std::vector<Declaration> declarations();  // declarations of strategy "expert"
  // Returns a new strategy. Experts are spread along the dimension "expert" of the context's mesh, or over
  // all ranks if the mesh has no such dimension.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
