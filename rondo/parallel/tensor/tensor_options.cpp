#include "rondo/parallel/tensor/tensor_options.h"

namespace rondo {

std::vector<Declaration> TensorStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.begin_group("Tensor parallelism");
  table.add("sequence-parallel", &Options::sequence_parallel,
            "Also divide norms, dropout and saved activations along the sequence");
  table.add("tensor-rules", &Options::rules,
            "Parallel styles by layer pattern, such as *.up=column,*.down=row; default: the model's own");
  table.without_flags({"sequence-parallel", "tensor-rules"});
  return {
      {.name = "tensor",
       .summary = "every layer is divided among the ranks, which compute each sample together",
       .options = table},
      {.name = "context",
       .summary = "every sequence is divided among the ranks; attention sends keys and values around a ring",
       .options = OptionsOf<Options>()}};
}

}  // namespace rondo
