#include "rondo/data/subset.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/kept_samples.h"
#include "rondo/data/sampler.h"

namespace rondo {

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

}  // namespace rondo
