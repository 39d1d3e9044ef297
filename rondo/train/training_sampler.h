#pragma once

#include "rondo/data/sampler.h"

namespace rondo {

// The order of samples in training. An epoch is a permutation drawn from (seed, epoch), rank r takes every
// count-th sample of it, and nothing is repeated or dropped: a rank may get one sample fewer than another. So
// global batch number b holds the same samples for any number of ranks with the same global batch size, and
// together with weighting by true sample counts a run on n ranks computes what one process computes on the
// joint batches. (PyTorch's DistributedSampler, in rondo/data/sampler.h, repeats samples of the head
// instead.)
class TrainingSampler final : public Sampler {
 public:
  struct Options {
    int index = 0;  // this reader's number
    int count = 1;  // readers
    bool shuffle = true;
    std::uint64_t seed = 0;
  };
  // Throws UsageError for an empty data set, or an index outside the readers.
  TrainingSampler(std::int64_t dataset_size, const Options& options);

  std::int64_t size() const override;
  std::vector<std::int64_t> indices() const override;
  // Batches of `batch_size` in an epoch at the reader that has most.
  std::int64_t batches_per_epoch(std::int64_t batch_size) const;

 private:
  std::int64_t dataset_size_;
  Options options_;
};

}  // namespace rondo
