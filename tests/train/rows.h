#pragma once

#include <ATen/core/Tensor.h>
#include <torch/types.h>

#include <algorithm>

#include "rondo/data/dataset.h"

namespace rondo::testing {

// Samples in memory: the rows of `inputs` and `targets`.
class Rows : public Dataset {
 public:
  // `classes` is 0 where targets are none.
  Rows(at::Tensor inputs, at::Tensor targets, std::int64_t classes = 0)
      : inputs_(std::move(inputs)), targets_(std::move(targets)) {
    info_.kind = "rows";
    info_.source = "memory";
    info_.input_shape = inputs_.sizes().slice(1).vec();
    info_.classes = classes;
    info_.targets_per_sample = targets_.numel() / std::max<std::int64_t>(1, targets_.size(0));
  }
  std::int64_t size() const override { return inputs_.size(0); }
  rondo::Batch get(std::span<const std::int64_t> indices) const override {
    check_indices(indices, size());
    const at::Tensor rows =
        torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), torch::kLong);
    return {inputs_.index_select(0, rows), targets_.index_select(0, rows),
            static_cast<std::int64_t>(indices.size())};
  }
  const DatasetInfo& info() const override { return info_; }

 private:
  at::Tensor inputs_, targets_;
  DatasetInfo info_;
};

}  // namespace rondo::testing
