#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rondo/data/data_files.h"
#include "rondo/data/dataset.h"

namespace rondo {

// Returns the positions in `asked` of the samples in `batch`. A data set may skip unreadable samples;
// Batch::indices then lists the samples that it returned.
std::vector<std::size_t> kept_places(std::span<const std::int64_t> asked, const Batch& batch);

// Replaces the indices in `batch`, if it has any: a sample at position i of `asked` becomes names[i].
void rename_samples(Batch& batch, std::span<const std::int64_t> asked, std::span<const std::int64_t> names);

// A subset of another data set: sample i is its sample indices[i].
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

// Indices of training and validation samples: a random choice determined by the seed, each list ascending.
struct SplitIndices {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> validation;
};

// Splits `size` samples. Validation gets round(size * fraction) samples, but at least one if fraction > 0.
// Throws UsageError for a fraction outside [0, 1) and if no sample would be left for training.
SplitIndices split_indices(std::int64_t size, double validation_fraction, std::uint64_t seed);

// Throws UsageError for a fraction outside [0, 1).
void check_validation_fraction(double fraction);

// Returns part `part` of `parts` of a batch, in the order of samples. Sizes differ by at most one, the first
// parts are larger, and parts beyond the number of samples are empty. Tensors are views of the batch's
// tensors. Throws UsageError for a tensor whose first dimension is not the number of samples.
Batch part_of_batch(const Batch& batch, int part, int parts);

// Concatenates the samples of all parts in order. Requires at least one part.
Batch joined_batch(std::span<const Batch> parts);

}  // namespace rondo
