#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/parallel/ddp/options.h"

namespace rondo {

class Context;
class Strategy;

// Of strategy "expert": of the averages of gradients, of dense parameters and of experts.
struct ExpertOptions : DdpOptions {
  std::string codec = "none";  // how gradients travel, a name for make_comm_hook
};

// This folder's strategy: what it is called and can be told (without libtorch), and how it is made.
struct ExpertFolder {
  using Options = ExpertOptions;                   // of strategy expert
  static std::vector<Declaration> declarations();  // of strategy expert
  // Makes it: the experts lie along the dimension "expert" of the context's mesh, all ranks where it has
  // none.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
