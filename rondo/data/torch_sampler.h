#pragma once

#include <torch/data/samplers/base.h>

#include <memory>
#include <optional>
#include <vector>

#include "rondo/data/sampler.h"

namespace rondo {

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
