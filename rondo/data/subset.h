#pragma once

#include <memory>
#include <vector>

#include "rondo/data/data_files.h"
#include "rondo/data/dataset.h"

namespace rondo {

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

}  // namespace rondo
