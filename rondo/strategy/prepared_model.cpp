#include "rondo/strategy/prepared_model.h"

#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/nn/gradient_values.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {

double PreparedModel::clip_gradients(double max_norm) {
  return rondo::clip_gradients(distinct_parameters(module()), max_norm);
}

StepTotals PreparedModel::totals() {
  const Group& group = totals_group_.member() ? totals_group_ : parts().group();
  if (!group.member() || group.size() == 1) return totals_;
  at::Tensor sums = at::tensor({totals_.loss, static_cast<double>(totals_.predictions),
                                static_cast<double>(totals_.samples), totals_.stop ? 1.0 : 0.0},
                               at::kDouble)
                        .to(group.traits().control_device());
  all_reduce(sums, group);
  sums = sums.cpu();
  const double* const values = sums.const_data_ptr<double>();
  return {.loss = values[0],
          .predictions = static_cast<std::int64_t>(values[1]),
          .samples = static_cast<std::int64_t>(values[2]),
          .stop = values[3] > 0};
}

}  // namespace rondo
