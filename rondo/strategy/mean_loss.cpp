#include "rondo/strategy/mean_loss.h"

#include <torch/types.h>

#include "rondo/backend/collectives.h"

namespace rondo {

at::Tensor mean_over_ranks(const at::Tensor& loss, double share, const Group& group) {
  const at::NoGradGuard no_grad;
  at::Tensor sums = torch::tensor({share == 0 ? 0.0 : share * loss.item<double>(), share}, at::kDouble)
                        .to(group.traits().control_device());
  all_reduce(sums, group);
  sums = sums.cpu();
  const auto shares = sums[1].item<double>();
  const double mean = shares == 0 ? 0.0 : sums[0].item<double>() / shares;
  return at::full({}, mean, loss.options().requires_grad(false));
}

}  // namespace rondo
