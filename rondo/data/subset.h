#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rondo/data/data_files.h"
#include "rondo/data/dataset.h"

namespace rondo {

// Where in `asked` the samples of `batch` stand: a data set may leave samples out that it cannot read, and
// then says in Batch::indices which it has given.
std::vector<std::size_t> kept_places(std::span<const std::int64_t> asked, const Batch& batch);

// Where `batch` says which samples it has, these get the names that `names` has for what was asked.
void rename_samples(Batch& batch, std::span<const std::int64_t> asked, std::span<const std::int64_t> names);

// Some samples of another data set: sample i is sample indices[i] of it.
class Subset final : public Dataset, public DataFiles {
 public:
  // Throws UsageError for an index outside `dataset`.
  Subset(std::shared_ptr<const Dataset> dataset, std::vector<std::int64_t> indices);
  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  Batch get(std::span<const std::int64_t> indices) const override;
  Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const override;
  const DatasetInfo& info() const override { return dataset_->info(); }
  std::vector<std::int64_t> file_starts() const override {
    return file_starts_of_chosen(file_starts_of(*dataset_), indices_);
  }

 private:
  std::vector<std::int64_t> inner(std::span<const std::int64_t> indices) const;

  std::shared_ptr<const Dataset> dataset_;
  std::vector<std::int64_t> indices_;
};

// Which of `size` samples are for training and which for validation: a random choice that `seed` fixes, each
// list in ascending order.
struct SplitIndices {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> validation;
};

// Validation gets round(size * fraction) samples, but at least one when fraction > 0. Throws UsageError for a
// fraction outside [0, 1) and for too few samples to leave any for training.
SplitIndices split_indices(std::int64_t size, double validation_fraction, std::uint64_t seed);

// Throws UsageError for a fraction outside [0, 1).
void check_validation_fraction(double fraction);

// Part `part` of `parts` of a batch, by samples in their order: sizes differ by one at most, the first parts
// are the larger ones, and parts beyond the number of samples have none. Tensors are views of the batch's.
// Throws UsageError for a tensor whose first dimension is not the samples.
Batch part_of_batch(const Batch& batch, int part, int parts);

// The samples of all parts in their order, of one part or more.
Batch joined_batch(std::span<const Batch> parts);

}  // namespace rondo
