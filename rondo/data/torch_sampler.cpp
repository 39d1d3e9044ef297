#include "rondo/data/torch_sampler.h"

#include <torch/serialize.h>
#include <torch/types.h>

#include <algorithm>

namespace rondo {

TorchSampler::TorchSampler(std::shared_ptr<rondo::Sampler> sampler)
    : sampler_(std::move(sampler)), indices_(sampler_->indices()) {}

void TorchSampler::reset(std::optional<std::size_t> /*new_size*/) {
  indices_ = sampler_->indices();
  position_ = 0;
}

std::optional<std::vector<std::size_t>> TorchSampler::next(std::size_t batch_size) {
  if (position_ >= indices_.size()) return std::nullopt;
  const std::size_t end = std::min(position_ + batch_size, indices_.size());
  std::vector<std::size_t> batch(indices_.begin() + static_cast<std::ptrdiff_t>(position_),
                                 indices_.begin() + static_cast<std::ptrdiff_t>(end));
  position_ = end;
  return batch;
}

void TorchSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", at::scalar_tensor(sampler_->epoch(), at::kLong), /*is_buffer=*/true);
  archive.write("position", at::scalar_tensor(static_cast<std::int64_t>(position_), at::kLong),
                /*is_buffer=*/true);
}

void TorchSampler::load(torch::serialize::InputArchive& archive) {
  at::Tensor epoch = at::empty({}, at::kLong), position = at::empty({}, at::kLong);
  archive.read("epoch", epoch, /*is_buffer=*/true);
  archive.read("position", position, /*is_buffer=*/true);
  sampler_->set_epoch(epoch.item<std::int64_t>());
  indices_ = sampler_->indices();
  position_ = static_cast<std::size_t>(position.item<std::int64_t>());
}

}  // namespace rondo
