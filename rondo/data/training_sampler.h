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

// A permutation of the numbers below `size` that uses no memory per element. A Feistel network computes the
// image and is repeated until the result is below the size (cycle walking). Thread-safe.
class IndexPermutation {
 public:
  // `size` must be positive. Different seeds give different permutations.
  IndexPermutation(std::int64_t size, std::uint64_t seed);
  std::int64_t operator()(std::int64_t index) const;

 private:
  static constexpr int kRounds = 6;
  std::uint64_t size_;
  int half_bits_ = 1;
  std::array<std::uint64_t, kRounds> keys_;
};

// Interface of data sets with a preferred order, such as shards, where distant samples are slow to read.
class EpochOrder {
 public:
  virtual ~EpochOrder() = default;
  // Returns the order of a training epoch: every sample once. `seed` differs in every epoch.
  virtual std::vector<std::int64_t> shuffled(std::uint64_t seed) const = 0;
};

// Returns the epoch order function of `data`; empty if any order is fine.
std::function<std::vector<std::int64_t>(std::uint64_t seed)> epoch_order_of(
    const std::shared_ptr<const Dataset>& data);

// Returns a random order for shards: `starts` has the first sample of each shard, then the number of samples.
// Shards are read in random order, and samples are drawn from a moving window. At any time, at most `window`
// samples and the next shard are in use.
std::vector<std::int64_t> order_of_shards(std::span<const std::int64_t> starts, std::int64_t window,
                                          std::uint64_t seed);

// The sampler of training. An epoch is a permutation drawn from (seed, epoch) in which nothing is repeated or
// dropped. By sample: rank r takes every count-th sample of it, so ranks may differ by one sample. A global
// batch then contains the same samples for any number of ranks with the same global batch size. With
// weighting by true sample counts, a run on n ranks computes the same as one process on the joint batches. By
// file: rank r takes the samples of every count-th file, in the order of the permutation. (PyTorch's
// DistributedSampler, in rondo/data/sampler.h, instead repeats samples from the head.)
class TrainingSampler final : public Sampler {
 public:
  // Part of an epoch that readers have read: each its first `samples` samples, or all if it had fewer.
  struct Done {
    int readers = 1;
    std::int64_t samples = 0;  // per reader
    bool by_file = false;
    bool operator==(const Done&) const = default;
  };
  struct Options {
    int index = 0;  // number of this reader
    int count = 1;  // number of readers
    bool shuffle = true;
    std::uint64_t seed = 0;
    // By file: the first sample of each file, then the number of samples. Reader f % count reads file f.
    std::vector<std::int64_t> files = {};
    // Whether this reader reads by file; if not, `files` applies only to `done`.
    bool by_file = false;
    // Parts of epoch `done_epoch` that earlier readers have read, in order; the current readers share the
    // rest.
    std::vector<Done> done = {};
    std::int64_t done_epoch = 0;
    // Replacement of the permutation: returns the order for a seed, for data with a preferred order
    // (EpochOrder).
    std::function<std::vector<std::int64_t>(std::uint64_t seed)> order = {};
  };
  // Throws UsageError for an empty data set, an index outside the readers, fewer files than readers if
  // reading by file, and more samples done than exist.
  TrainingSampler(std::int64_t dataset_size, const Options& options);

  std::int64_t size() const override;
  std::vector<std::int64_t> indices() const override;
  // Returns the number of batches of `batch_size` in this epoch at the reader with the most samples.
  std::int64_t batches_per_epoch(std::int64_t batch_size) const;
  std::int64_t left() const;  // samples of this epoch for all readers

 private:
  std::vector<std::int64_t> rest() const;  // rest of this epoch, in its order
  // samples of each reader in this epoch; empty: computed by a formula
  const std::vector<std::int64_t>& sizes() const;
  int reader_of(std::int64_t sample, int count) const;  // by file

  std::int64_t dataset_size_;
  Options options_;
  // Samples of each reader if no formula gives them: by file, and for epoch done_epoch.
  std::vector<std::int64_t> sizes_, rest_sizes_;
};

// Returns the number of samples of each of `readers` readers, by file.
std::vector<std::int64_t> sizes_by_file(const std::vector<std::int64_t>& files, int readers);

}  // namespace rondo
