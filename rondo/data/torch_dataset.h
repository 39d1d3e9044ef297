#pragma once

#include <ATen/ops/stack.h>
#include <torch/data/datasets/base.h>
#include <torch/data/example.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "rondo/data/dataset.h"

namespace rondo {

// A map-style data set of torch::data with its transforms: torch::data::datasets::MNIST(path), or
// `MyData().map(torch::data::transforms::Stack<>())`. Its batches are one Example or a vector of Examples.
template <class T>
concept TorchDataset = std::copy_constructible<T> && requires(T dataset, std::vector<std::size_t> indices) {
  dataset.get_batch(indices);
  { dataset.size() } -> std::convertible_to<std::optional<std::size_t>>;
};

namespace torch_dataset_detail {

// Returns the number of samples. Throws UsageError if the data set does not know it.
std::int64_t size_of(std::optional<std::size_t> size);
// Throws UsageError unless every tensor of the batch has `wanted` rows.
Batch checked(Batch batch, std::int64_t wanted);
DatasetInfo info_of(const Batch& first, std::int64_t classes);

template <class Data, class Target>
Batch batch_of(torch::data::Example<Data, Target> example) {
  static_assert(std::is_same_v<Data, at::Tensor>, "the data of an example is a tensor");
  Batch batch{.inputs = {std::move(example.data)}, .targets = {}};
  if constexpr (!std::is_void_v<Target>) batch.targets = {std::move(example.target)};
  return batch;
}

template <class Data, class Target>
Batch batch_of(const std::vector<torch::data::Example<Data, Target>>& examples) {
  std::vector<at::Tensor> inputs, targets;
  for (const auto& example : examples) {
    inputs.push_back(example.data);
    if constexpr (!std::is_void_v<Target>) targets.push_back(example.target);
  }
  Batch batch{.inputs = {at::stack(inputs)}, .targets = {}};
  if (!targets.empty()) batch.targets = {at::stack(targets)};
  return batch;
}

// A data set over the samples of `Torch`.
template <TorchDataset Torch>
class Adapter final : public Dataset {
 public:
  // `classes`: number of labels; 0 if the targets are no labels.
  Adapter(Torch dataset, std::int64_t classes)
      : prototype_(std::move(dataset)), size_(size_of(prototype_.size())) {
    if (size_ > 0) info_ = info_of(read(std::vector<std::size_t>{0}), classes);
  }

  std::int64_t size() const override { return size_; }
  const DatasetInfo& info() const override { return info_; }

  Batch get(std::span<const std::int64_t> indices) const override {
    check_indices(indices, size_);
    if (!indices.empty()) return read(std::vector<std::size_t>(indices.begin(), indices.end()));
    Batch batch = size_ > 0 ? read(std::vector<std::size_t>{0}) : Batch{};
    for (auto* const tensors : {&batch.inputs, &batch.targets}) {
      for (at::Tensor& tensor : *tensors) tensor = tensor.narrow(0, 0, 0);
    }
    batch.samples = 0;
    return batch;
  }

 private:
  // Reads from a copy of the data set, like the workers of torch::data's loaders: get_batch() need not be
  // thread-safe.
  Batch read(std::vector<std::size_t> indices) const {
    std::unique_ptr<Torch> copy = take();
    const auto wanted = static_cast<std::int64_t>(indices.size());
    Batch batch = checked(batch_of(copy->get_batch(std::move(indices))), wanted);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(copy));
    return batch;
  }

  std::unique_ptr<Torch> take() const {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Torch>(prototype_);
    std::unique_ptr<Torch> copy = std::move(idle_.back());
    idle_.pop_back();
    return copy;
  }

  Torch prototype_;  // copied while mutex_ is held
  std::int64_t size_ = 0;
  DatasetInfo info_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Torch>> idle_;  // protected by mutex_: copies that no thread uses
};

}  // namespace torch_dataset_detail

// Adapts a data set of torch::data to a rondo Dataset, for Trainer, strategies and loaders. Reads sample 0 to
// determine the shape. `classes` is the number of classes if targets are class numbers, else 0. Throws
// UsageError if the data set does not know its size. Sampler, batch size and the division over ranks are
// rondo's, so that training can be resumed. A torch::data loader determines them itself and needs a custom
// loop (TorchSampler). Random transforms draw from libtorch's generator, whose state no checkpoint contains.
template <TorchDataset Torch>
std::shared_ptr<const Dataset> from_torch(Torch dataset, std::int64_t classes = 0) {
  return std::make_shared<torch_dataset_detail::Adapter<Torch>>(std::move(dataset), classes);
}

}  // namespace rondo
