#pragma once

#include <torch/data/samplers/base.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace rondo {

// Which samples of a data set one rank reads in an epoch, and in which order. One thread at a time may use a
// sampler.
class Sampler {
 public:
  virtual ~Sampler() = default;
  // Number of indices that every epoch gives this rank.
  virtual std::int64_t size() const = 0;
  // This rank's indices of the current epoch: a function of the settings and the epoch alone, so an epoch can
  // be replayed or resumed anywhere.
  virtual std::vector<std::int64_t> indices() const = 0;

  // As in PyTorch: without a new epoch number every epoch has the same order.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }
  std::int64_t epoch() const { return epoch_; }  // of the samples that indices() gives

 private:
  std::int64_t epoch_ = 0;
};

// Which part of the samples a rank reads, and in which order.
struct DistributedSamplerOptions {
  int rank = 0;            // of the reader
  int world_size = 1;      // number of readers
  bool shuffle = true;     // another order in every epoch
  std::uint64_t seed = 0;  // of the order; the same on all ranks
  // When the number of samples does not divide evenly: true drops the tail, false repeats samples from the
  // head.
  bool drop_last = false;
};

// torch.utils.data.DistributedSampler, index for index: shuffle with randperm(seed + epoch), pad by repeating
// the head or drop the tail, then every world_size-th index from `rank` on. All ranks get the same number of
// indices. (The sampler of that name in libtorch's C++ API differs; see the README.)
class DistributedSampler final : public Sampler {
 public:
  // Throws UsageError for an empty data set, or a rank outside the world.
  DistributedSampler(std::int64_t dataset_size, const DistributedSamplerOptions& options);
  std::int64_t size() const override { return samples_per_rank_; }
  std::vector<std::int64_t> indices() const override;

 private:
  std::int64_t dataset_size_;
  DistributedSamplerOptions options_;
  std::int64_t samples_per_rank_;
};

// For evaluation: sample i belongs to rank i modulo world_size, in order, nothing repeated and nothing
// dropped. Sums over all ranks are then sums over the data set; ranks may differ by one sample, or have none.
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

// The numbers of torch.randperm(size, generator=torch.Generator().manual_seed(seed)).
std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed);

// Lets torch::data's own loaders use a rondo sampler, so that an existing input pipeline is split over ranks:
//   auto sampler = std::make_shared<DistributedSampler>(size, options);
//   auto loader = torch::data::make_data_loader(dataset, TorchSampler(sampler), loader_options);
//   for each epoch: sampler->set_epoch(epoch), then iterate.
class TorchSampler final : public torch::data::samplers::Sampler<> {
 public:
  // Gives the indices of `sampler`.
  explicit TorchSampler(std::shared_ptr<rondo::Sampler> sampler);
  // Starts the epoch that the sampler is at; the size is the sampler's own.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  // At most `batch_size` indices; nothing at the end of the epoch.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  // Epoch and position within it; load() also sets the epoch of the rondo sampler.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;  // as save() wrote it

 private:
  std::shared_ptr<rondo::Sampler> sampler_;
  std::vector<std::int64_t> indices_;
  std::size_t position_ = 0;
};

}  // namespace rondo
