#include "rondo/data/split_batch.h"

#include <ATen/ops/cat.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

Batch part_of_batch(const Batch& batch, int part, int parts) {
  const std::int64_t each = batch.samples / parts;
  const std::int64_t larger = batch.samples % parts;
  const std::int64_t begin = each * part + std::min<std::int64_t>(part, larger);
  Batch result;
  result.samples = each + (part < larger ? 1 : 0);
  const auto rows_of = [&](const std::vector<at::Tensor>& tensors, const char* what) {
    std::vector<at::Tensor> rows;
    rows.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      if (tensor.dim() == 0 || tensor.size(0) != batch.samples) {
        throw UsageError(str("a batch of ", batch.samples, " samples has ", what, " of shape [",
                             join(tensor.sizes(), ", "),
                             "]; to be divided among replicas its first dimension must "
                             "be the samples"));
      }
      rows.push_back(tensor.narrow(0, begin, result.samples));
    }
    return rows;
  };
  result.inputs = rows_of(batch.inputs, "an input");
  result.targets = rows_of(batch.targets, "a target");
  if (!batch.indices.empty()) {
    const auto first = batch.indices.begin() + begin;
    result.indices.assign(first, first + result.samples);
  }
  return result;
}

Batch joined_batch(std::span<const Batch> parts) {
  Batch result = parts.front();
  const auto join_tensors = [&](std::vector<at::Tensor> Batch::*tensors) {
    for (std::size_t i = 0; i < (result.*tensors).size(); ++i) {
      std::vector<at::Tensor> rows;
      for (const Batch& part : parts) rows.push_back((part.*tensors)[i]);
      (result.*tensors)[i] = at::cat(rows, 0);
    }
  };
  join_tensors(&Batch::inputs);
  join_tensors(&Batch::targets);
  for (const Batch& part : parts.subspan(1)) {
    result.samples += part.samples;
    result.indices.insert(result.indices.end(), part.indices.begin(), part.indices.end());
  }
  return result;
}

}  // namespace rondo
