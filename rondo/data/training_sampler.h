#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "rondo/data/dataset.h"
#include "rondo/data/sampler.h"

namespace rondo {

// A permutation of the numbers below `size` that takes no memory: where a number goes is computed, by a
// Feistel network that is walked until it comes out below the size. Any thread.
class IndexPermutation {
 public:
  // `size` must be positive; another seed is another permutation.
  IndexPermutation(std::int64_t size, std::uint64_t seed);
  std::int64_t operator()(std::int64_t index) const;

 private:
  static constexpr int kRounds = 6;
  std::uint64_t size_;
  int half_bits_ = 1;
  std::array<std::uint64_t, kRounds> keys_;
};

// What a data set is besides that is not to be read in any order: shards, of which far apart samples are slow
// to read.
class EpochOrder {
 public:
  virtual ~EpochOrder() = default;
  // The order of a training epoch: every sample once. `seed` is another one in every epoch.
  virtual std::vector<std::int64_t> shuffled(std::uint64_t seed) const = 0;
};

// That of `data`; nothing where any order will do.
std::function<std::vector<std::int64_t>(std::uint64_t seed)> epoch_order_of(
    const std::shared_ptr<const Dataset>& data);

// The order for shards: `starts` has the first sample of each and the number of samples. Shards come in
// random order, and samples are drawn from a window that moves over them, so that what is read at a time is
// no more than `window` samples and the shard that comes next.
std::vector<std::int64_t> order_of_shards(std::span<const std::int64_t> starts, std::int64_t window,
                                          std::uint64_t seed);

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
    // In place of a permutation: the order for a seed, of data that is not read in any order (EpochOrder).
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
