#include "rondo/data/torch_dataset.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::torch_dataset_detail {

std::int64_t size_of(std::optional<std::size_t> size) {
  if (!size)
    throw UsageError(
        "from_torch: the data set has no size (size() is empty), so its samples cannot be divided over "
        "ranks; give one that does, or read it in a loop of your own");
  return static_cast<std::int64_t>(*size);
}

Batch checked(Batch batch, std::int64_t wanted) {
  for (const auto* const tensors : {&batch.inputs, &batch.targets}) {
    for (const at::Tensor& tensor : *tensors) {
      const std::int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
      if (rows != wanted)
        throw UsageError(str("from_torch: get_batch() gave a tensor of ", rows, " rows for ", wanted,
                             " samples; a data set whose batches are one Example stacks them "
                             "(.map(torch::data::transforms::Stack<>()))"));
    }
  }
  batch.samples = wanted;
  return batch;
}

DatasetInfo info_of(const Batch& first, std::int64_t classes) {
  DatasetInfo info{.kind = "torch", .source = "torch::data", .input_shape = {}, .classes = classes};
  info.input_shape = first.inputs.front().sizes().slice(1).vec();
  if (!first.targets.empty())
    info.targets_per_sample = std::max<std::int64_t>(1, first.targets.front().numel());
  return info;
}

}  // namespace rondo::torch_dataset_detail
