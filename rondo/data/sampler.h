#pragma once

#include <torch/data/samplers/base.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace rondo {

// A sequence of the samples that one rank reads in an epoch. Not thread-safe.
class Sampler {
 public:
  virtual ~Sampler() = default;
  // Returns the number of indices per epoch for this rank.
  virtual std::int64_t size() const = 0;
  // Returns this rank's indices of the current epoch. Depends only on the settings and the epoch, so an epoch
  // can be replayed or resumed anywhere.
  virtual std::vector<std::int64_t> indices() const = 0;

  // Sets the epoch. As in PyTorch, the order changes only with the epoch number.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }
  std::int64_t epoch() const { return epoch_; }  // epoch of indices()

 private:
  std::int64_t epoch_ = 0;
};

// Options of a DistributedSampler.
struct DistributedSamplerOptions {
  int rank = 0;            // rank of the reader
  int world_size = 1;      // number of readers
  bool shuffle = true;     // a different order in every epoch
  std::uint64_t seed = 0;  // seed of the order; equal on all ranks
  // If the number of samples does not divide evenly: true drops the tail, false repeats samples from the
  // head.
  bool drop_last = false;
};

// A sampler with the same indices as torch.utils.data.DistributedSampler: shuffles with randperm(seed +
// epoch), pads by repeating the head or drops the tail, then takes every world_size-th index from `rank` on.
// All ranks get the same number of indices. (The sampler of that name in libtorch's C++ API differs; see the
// README.)
class DistributedSampler final : public Sampler {
 public:
  // Throws UsageError for an empty data set or a rank outside the world.
  DistributedSampler(std::int64_t dataset_size, const DistributedSamplerOptions& options);
  std::int64_t size() const override { return samples_per_rank_; }
  std::vector<std::int64_t> indices() const override;

 private:
  std::int64_t dataset_size_;
  DistributedSamplerOptions options_;
  std::int64_t samples_per_rank_;
};

// A sampler for evaluation: sample i belongs to rank i modulo world_size, in order, without repetition or
// omission. Sums over all ranks are therefore sums over the data set. Ranks may differ by one sample or have
// none.
class ExactSampler final : public Sampler {
 public:
  // Throws UsageError for a rank outside the world.
  ExactSampler(std::int64_t dataset_size, int rank, int world_size);
  std::int64_t size() const override;
  std::vector<std::int64_t> indices() const override;

 private:
  std::int64_t dataset_size_;
  int rank_;
  int world_size_;
};

// Returns the same numbers as torch.randperm(size, generator=torch.Generator().manual_seed(seed)).
std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed);

// An adapter that lets torch::data's loaders use a rondo sampler, to split an existing input pipeline over
// ranks:
// auto sampler = std::make_shared<DistributedSampler>(size, options);
// auto loader = torch::data::make_data_loader(dataset, TorchSampler(sampler), loader_options);
// for each epoch: sampler->set_epoch(epoch), then iterate.
class TorchSampler final : public torch::data::samplers::Sampler<> {
 public:
  // Wraps `sampler`.
  explicit TorchSampler(std::shared_ptr<rondo::Sampler> sampler);
  // Starts the sampler's current epoch; ignores `new_size`.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  // Returns at most `batch_size` indices; nullopt at the end of the epoch.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  // Saves the epoch and the position in it.
  void save(torch::serialize::OutputArchive& archive) const override;
  // restores save(); also sets the epoch of the rondo sampler
  void load(torch::serialize::InputArchive& archive) override;

 private:
  std::shared_ptr<rondo::Sampler> sampler_;
  std::vector<std::int64_t> indices_;
  std::size_t position_ = 0;
};

}  // namespace rondo
