#include "rondo/strategy/norms_of_parts.h"

#include <torch/types.h>

#include "rondo/backend/collectives.h"

namespace rondo {

void add_norms_of_parts(const std::vector<at::Tensor>& parameters, const PartSet& parts, const Group& group,
                        at::Tensor& squares) {
  at::Tensor sums = squares.clone().to(group.traits().control_device());
  all_reduce(sums, group, ReduceOp::SUM);
  sums = sums.cpu();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    if (parts.contains(parameters[i].unsafeGetTensorImpl())) squares[row].copy_(sums[row]);
  }
}

}  // namespace rondo
