#pragma once

#include "rondo/data/dataset.h"

namespace rondo {

// Samples in memory: rows of tensors, of any dtypes and as many inputs and targets as the model and the loss
// function take.
class TensorDataset : public Dataset {
 public:
  // Row i of every tensor belongs to sample i. `classes` is 0 where targets are none. Throws UsageError when
  // there is no input, or tensors have different numbers of rows.
  TensorDataset(std::vector<at::Tensor> inputs, std::vector<at::Tensor> targets, std::int64_t classes = 0);

  std::int64_t size() const override { return inputs_.front().size(0); }
  Batch get(std::span<const std::int64_t> indices) const override;
  const DatasetInfo& info() const override { return info_; }

 private:
  std::vector<at::Tensor> inputs_, targets_;
  DatasetInfo info_;
};

}  // namespace rondo
