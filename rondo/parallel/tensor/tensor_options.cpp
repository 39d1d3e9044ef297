#include "rondo/parallel/tensor/tensor_options.h"

namespace rondo {

std::vector<Declaration> TensorStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.begin_group("Tensor parallelism");
  table.add("sequence-parallel", &Options::sequence_parallel,
            "Norms, dropout and what is kept for backward are divided along the sequence, too");
  table.add("tensor-rules", &Options::rules,
            "Layers by patterns of their paths, as *.up=column,*.down=row; default: the model's own");
  table.without_flags({"sequence-parallel", "tensor-rules"});
  return {{.name = "tensor",
           .summary = "every layer is divided among the ranks, which compute each sample together",
           .options = table},
          {.name = "context",
           .summary = "every sequence is divided among the ranks; attention passes keys and values round",
           .options = OptionsOf<Options>()}};
}

}  // namespace rondo
