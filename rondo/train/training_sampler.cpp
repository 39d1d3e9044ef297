#include "rondo/train/training_sampler.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

std::int64_t divide_rounding_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

}  // namespace

TrainingSampler::TrainingSampler(std::int64_t dataset_size, const Options& options)
    : dataset_size_(dataset_size), options_(options) {
  if (dataset_size < 1) throw UsageError("the training data has no sample");
  if (options.index < 0 || options.index >= options.count) {
    throw UsageError(str("reader ", options.index, " is outside of ", options.count, " readers"));
  }
}

std::int64_t TrainingSampler::size() const {
  return divide_rounding_up(dataset_size_ - options_.index, options_.count);
}

std::vector<std::int64_t> TrainingSampler::indices() const {
  std::vector<std::int64_t> order;
  if (options_.shuffle)
    order = random_permutation(dataset_size_, options_.seed + static_cast<std::uint64_t>(epoch()));
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(size()));
  for (std::int64_t i = options_.index; i < dataset_size_; i += options_.count) {
    mine.push_back(options_.shuffle ? order[static_cast<std::size_t>(i)] : i);
  }
  return mine;
}

std::int64_t TrainingSampler::batches_per_epoch(std::int64_t batch_size) const {
  return divide_rounding_up(divide_rounding_up(dataset_size_, options_.count), batch_size);
}

}  // namespace rondo
