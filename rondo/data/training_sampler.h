#pragma once

#include <functional>
#include <vector>

#include "rondo/data/sampler.h"

namespace rondo {

// The order of samples in training. An epoch is a permutation drawn from (seed, epoch), and nothing is
// repeated or dropped. By sample, rank r takes every count-th sample of it: a rank may get one sample fewer
// than another. So global batch number b holds the same samples for any number of ranks with the same global
// batch size, and together with weighting by true sample counts a run on n ranks computes what one process
// computes on the joint batches. By file, rank r takes the samples of every count-th file, in the order of
// that permutation. (PyTorch's DistributedSampler, in rondo/data/sampler.h, repeats samples of the head
// instead.)
class TrainingSampler final : public Sampler {
 public:
  // What readers have read of an epoch: each the first `samples` of its own, or all where it had fewer.
  struct Done {
    int readers = 1;
    std::int64_t samples = 0;  // of each reader
    bool by_file = false;
    bool operator==(const Done&) const = default;
  };
  struct Options {
    int index = 0;  // this reader's number
    int count = 1;  // readers
    bool shuffle = true;
    std::uint64_t seed = 0;
    // By file: the first sample of each file and the number of samples. File f is read by reader f % count.
    std::vector<std::int64_t> files = {};
    // Whether this reader reads by file; where it does not, `files` are those of what was done before.
    bool by_file = false;
    // What of epoch `done_epoch` others have read before, one after another: these readers share the rest.
    std::vector<Done> done = {};
    std::int64_t done_epoch = 0;
    // In place of a permutation: the order for a seed, of data that is not read in any order (epoch_order.h).
    std::function<std::vector<std::int64_t>(std::uint64_t seed)> order = {};
  };
  // Throws UsageError for an empty data set, an index outside the readers, fewer files than readers by file,
  // and for more samples done than there are.
  TrainingSampler(std::int64_t dataset_size, const Options& options);

  std::int64_t size() const override;
  std::vector<std::int64_t> indices() const override;
  // Batches of `batch_size` in this epoch at the reader that has most.
  std::int64_t batches_per_epoch(std::int64_t batch_size) const;
  std::int64_t left() const;  // samples of this epoch for all readers

 private:
  std::vector<std::int64_t> rest() const;               // of this epoch, in its order
  const std::vector<std::int64_t>& sizes() const;       // of this epoch; empty: a formula
  int reader_of(std::int64_t sample, int count) const;  // by file

  std::int64_t dataset_size_;
  Options options_;
  // Each reader's samples where that is no formula: by file, and of epoch done_epoch.
  std::vector<std::int64_t> sizes_, rest_sizes_;
};

// By file: the samples of each of `readers`.
std::vector<std::int64_t> sizes_by_file(const std::vector<std::int64_t>& files, int readers);

}  // namespace rondo
