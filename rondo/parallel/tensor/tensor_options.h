#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

class Context;
class Strategy;

// Options of strategy "tensor". All ranks must pass the same options.
struct TensorOptions {
  bool sequence_parallel = false;  // whether norms and dropout divide the sequence; gpt supports it
  // Styles of layers by path pattern, such as "*.up=column,*.down=row" (see ParallelRules). Empty: the
  // model's own rules (ParallelModel).
  std::string rules = {};
};

// Registration of strategies "tensor" and "context": declarations (without libtorch) and the factory.
struct TensorStrategyFactory {
  using Options = TensorOptions;                   // options of both strategies
  static std::vector<Declaration> declarations();  // declarations of both strategies
  // Returns a new strategy along the dimension `name` of the context's mesh, or over all ranks without a
  // mesh.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
