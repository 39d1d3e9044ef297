#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

class Context;
class Strategy;

// Of strategy "tensor". Every rank must give the same options.
struct TensorOptions {
  bool sequence_parallel = false;  // norms and dropout see a part of the sequence; gpt has that form
  // "*.up=column,*.down=row": layers by the patterns of their paths, as ParallelRules has them. Empty: the
  // model's own (ParallelModel).
  std::string rules = {};
};

// This folder's strategy: what it is called and can be told (without libtorch), and how it is made.
struct TensorFolder {
  using Options = TensorOptions;                   // of strategy tensor
  static std::vector<Declaration> declarations();  // of strategy tensor
  // Makes it: of the dimension "tensor" of the context's mesh, or of all ranks.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
