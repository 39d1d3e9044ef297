#include "rondo/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

void check_rank(int rank, int world_size) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw UsageError(
        str("sampler: rank ", rank, " of world size ", world_size, ", expected 0 <= rank < world size"));
  }
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const at::Tensor order = at::randperm(size, generator, at::kLong);
  const auto* values = order.const_data_ptr<std::int64_t>();
  return {values, values + size};
}

DistributedSampler::DistributedSampler(std::int64_t dataset_size, const DistributedSamplerOptions& options)
    : dataset_size_(dataset_size), options_(options) {
  check_rank(options.rank, options.world_size);
  if (dataset_size < 1) throw UsageError("sampler: the data set is empty");
  samples_per_rank_ =
      options.drop_last ? dataset_size / options.world_size : ceil_divide(dataset_size, options.world_size);
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  std::vector<std::int64_t> order;
  if (options_.shuffle) {
    order = random_permutation(dataset_size_, options_.seed + static_cast<std::uint64_t>(epoch()));
  } else {
    order.resize(static_cast<std::size_t>(dataset_size_));
    std::iota(order.begin(), order.end(), 0);
  }
  std::vector<std::int64_t> mine(static_cast<std::size_t>(samples_per_rank_));
  for (std::int64_t i = 0; i < samples_per_rank_; ++i) {
    // Wrapping around repeats the head as often as necessary.
    const std::int64_t position = (options_.rank + i * options_.world_size) % dataset_size_;
    mine[static_cast<std::size_t>(i)] = order[static_cast<std::size_t>(position)];
  }
  return mine;
}

ExactSampler::ExactSampler(std::int64_t dataset_size, int rank, int world_size)
    : dataset_size_(dataset_size), rank_(rank), world_size_(world_size) {
  check_rank(rank, world_size);
}

std::int64_t ExactSampler::size() const {
  return dataset_size_ <= rank_ ? 0 : ceil_divide(dataset_size_ - rank_, world_size_);
}

std::vector<std::int64_t> ExactSampler::indices() const {
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(size()));
  for (std::int64_t i = rank_; i < dataset_size_; i += world_size_) mine.push_back(i);
  return mine;
}

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
