#include "rondo/data/images.h"

#include <ATen/ops/empty.h>

#include <iterator>
#include <numeric>

#include "rondo/data/subset.h"

namespace rondo {

void ImageRecords::append(ImageRecords other) {
  for (const std::int64_t start : other.starts)
    starts.push_back(static_cast<std::int64_t>(labels.size()) + start);
  files.insert(files.end(), std::make_move_iterator(other.files.begin()),
               std::make_move_iterator(other.files.end()));
  pixels.insert(pixels.end(), other.pixels.begin(), other.pixels.end());
  labels.insert(labels.end(), other.labels.begin(), other.labels.end());
}

ImageDataset::ImageDataset(ImageRecords records, DatasetInfo info)
    : records_(std::move(records)), info_(std::move(info)) {
  values_ = static_cast<std::size_t>(std::accumulate(info_.input_shape.begin(), info_.input_shape.end(),
                                                     std::int64_t{1}, std::multiplies<>()));
}

std::vector<std::int64_t> ImageDataset::file_starts() const {
  std::vector<std::int64_t> starts = records_.starts;
  starts.push_back(size());
  return without_empty_files(std::move(starts));
}

Batch ImageDataset::get(std::span<const std::int64_t> indices) const {
  check_indices(indices, size());
  const auto samples = static_cast<std::int64_t>(indices.size());
  std::vector<std::int64_t> shape = info_.input_shape;
  shape.insert(shape.begin(), samples);
  Batch batch{.inputs = {at::empty(shape, at::kFloat)},
              .targets = {at::empty({samples}, at::kLong)},
              .samples = samples};
  auto* input = batch.inputs[0].mutable_data_ptr<float>();
  auto* target = batch.targets[0].mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    const std::uint8_t* pixels = records_.pixels[static_cast<std::size_t>(index)];
    for (std::size_t i = 0; i < values_; ++i) *input++ = static_cast<float>(pixels[i]) / 127.5F - 1.0F;
    *target++ = records_.labels[static_cast<std::size_t>(index)];
  }
  return batch;
}

OpenedData open_images(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> test,
                       const DataOptions& options) {
  const std::string kind = train->info().kind;
  check_validation_fraction(options.validation_fraction);
  if (test || options.validation_fraction == 0.0) return {kind, std::move(train), std::move(test)};
  SplitIndices split = split_indices(train->size(), options.validation_fraction, options.split_seed);
  return {kind, std::make_shared<Subset>(train, std::move(split.train)),
          std::make_shared<Subset>(train, std::move(split.validation))};
}

}  // namespace rondo
