#include "rondo/data/subset.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/sampler.h"

namespace rondo {

std::vector<std::size_t> kept_places(std::span<const std::int64_t> asked, const Batch& batch) {
  std::vector<std::size_t> places(static_cast<std::size_t>(batch.samples));
  if (places.size() == asked.size()) {
    std::iota(places.begin(), places.end(), std::size_t{0});
    return places;
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < places.size(); ++i, ++at) {
    while (asked[at] != batch.indices[i]) ++at;
    places[i] = at;
  }
  return places;
}

void rename_samples(Batch& batch, std::span<const std::int64_t> asked, std::span<const std::int64_t> names) {
  if (batch.indices.empty()) return;
  const std::vector<std::size_t> places = kept_places(asked, batch);
  for (std::size_t i = 0; i < places.size(); ++i) batch.indices[i] = names[places[i]];
}

Subset::Subset(std::shared_ptr<const Dataset> dataset, std::vector<std::int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  if (dataset_ == nullptr) throw UsageError("subset: the data set is null");
  check_indices(indices_, dataset_->size());
}

Batch Subset::get(std::span<const std::int64_t> indices) const {
  const std::vector<std::int64_t> asked = inner(indices);
  Batch batch = dataset_->get(asked);
  rename_samples(batch, asked, indices);
  return batch;
}

Batch Subset::get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  const std::vector<std::int64_t> asked = inner(indices);
  Batch batch = dataset_->get_at_epoch(asked, epoch);
  rename_samples(batch, asked, indices);
  return batch;
}

std::vector<std::int64_t> Subset::inner(std::span<const std::int64_t> indices) const {
  check_indices(indices, size());
  std::vector<std::int64_t> inner(indices.size());
  std::transform(indices.begin(), indices.end(), inner.begin(),
                 [this](std::int64_t index) { return indices_[static_cast<std::size_t>(index)]; });
  return inner;
}

void check_validation_fraction(double fraction) {
  if (!(fraction >= 0.0 && fraction < 1.0)) {
    throw UsageError(str("the validation fraction is ", fraction, ", expected 0 <= fraction < 1"));
  }
}

SplitIndices split_indices(std::int64_t size, double validation_fraction, std::uint64_t seed) {
  check_validation_fraction(validation_fraction);
  std::int64_t validation = std::llround(static_cast<double>(size) * validation_fraction);
  if (validation_fraction > 0.0) validation = std::max<std::int64_t>(validation, 1);
  if (validation >= size) {
    throw UsageError(str("of ", size, " samples a validation fraction of ", validation_fraction,
                         " leaves none for training"));
  }
  std::vector<std::int64_t> order = random_permutation(size, seed);
  const auto cut = order.begin() + validation;
  std::sort(order.begin(), cut);
  std::sort(cut, order.end());
  return {.train = {cut, order.end()}, .validation = {order.begin(), cut}};
}

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
