#include "rondo/data/image_samples.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/data/epoch_order.h"
#include "rondo/data/subset.h"

namespace rondo {
namespace {

ColourScale colour_scale(const ImageOptions& options) {
  const auto mean = colour_numbers(options.mean, "image-mean");
  const auto deviation = colour_numbers(options.deviation, "image-deviation");
  ColourScale colours;
  for (std::size_t c = 0; c < 3; ++c) {
    if (!(deviation[c] > 0)) throw UsageError(str("image-deviation ", deviation[c], ": expected above 0"));
    colours.scale[c] = static_cast<float>(1 / (255 * deviation[c]));
    colours.shift[c] = static_cast<float>(-mean[c] / deviation[c]);
  }
  return colours;
}

// Shards of which some samples are left out, in the same order.
class ShardedSubset final : public Dataset, public EpochOrder, public DataFiles {
 public:
  ShardedSubset(const std::shared_ptr<const Dataset>& data, std::vector<std::int64_t> indices,
                const std::vector<std::int64_t>& starts, std::int64_t window)
      : subset_(data, indices), window_(window) {
    // Indices ascend, so each shard's samples stay together.
    for (const std::int64_t start : starts)
      starts_.push_back(std::lower_bound(indices.begin(), indices.end(), start) - indices.begin());
  }
  std::int64_t size() const override { return subset_.size(); }
  Batch get(std::span<const std::int64_t> indices) const override { return subset_.get(indices); }
  Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const override {
    return subset_.get_at_epoch(indices, epoch);
  }
  const DatasetInfo& info() const override { return subset_.info(); }
  std::vector<std::int64_t> file_starts() const override { return subset_.file_starts(); }
  std::vector<std::int64_t> shuffled(std::uint64_t seed) const override {
    return order_of_shards(starts_, window_, seed);
  }

 private:
  Subset subset_;
  std::int64_t window_;
  std::vector<std::int64_t> starts_;
};

std::vector<std::int64_t> all_of(std::int64_t size) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

}  // namespace

ImageSamples::ImageSamples(std::shared_ptr<const EncodedImages> images, const ImageOptions& options,
                           std::uint64_t seed, bool training, DatasetInfo info)
    : images_(std::move(images)),
      options_(options),
      seed_(seed),
      training_(training),
      info_(std::move(info)),
      colours_(colour_scale(options)) {
  info_.input_shape = {3, options.size, options.size};
}

Batch ImageSamples::get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  check_indices(indices, size());
  const auto asked = static_cast<std::int64_t>(indices.size());
  Batch batch{.inputs = {at::empty({asked, 3, options_.size, options_.size}, at::kFloat)},
              .targets = {at::empty({asked}, at::kLong)},
              .samples = 0};
  auto* input = batch.inputs[0].mutable_data_ptr<float>();
  auto* target = batch.targets[0].mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    try {
      write_sample(index, epoch, input);
    } catch (const DataError& error) {
      if (options_.corrupt != "skip") throw DataError(str("'", images_->name(index), "': ", error.what()));
      skip(index, error.what());
      continue;
    }
    input += 3 * options_.size * options_.size;
    *target++ = images_->label(index);
    batch.indices.push_back(index);
    ++batch.samples;
  }
  if (batch.samples < asked) {
    batch.inputs[0] = batch.inputs[0].narrow(0, 0, batch.samples);
    batch.targets[0] = batch.targets[0].narrow(0, 0, batch.samples);
  }
  return batch;
}

void ImageSamples::write_sample(std::int64_t index, std::int64_t epoch, float* to) const {
  std::string storage;
  const std::span<const std::uint8_t> file = images_->read(index, storage);
  bool mirrored = false;
  DecodeRequest request{
      .choose = {}, .size = static_cast<int>(options_.size), .may_scale = options_.decode == "scaled"};
  request.choose = [&](int width, int height) {
    if (!training_) return middle_view(width, height).box;
    // Epochs are a large odd number apart, so that no two (seed, epoch) of a training meet.
    RandomStream random(seed_ + static_cast<std::uint64_t>(epoch) * 0x9E3779B97F4A7C15ULL,
                        static_cast<std::uint64_t>(index));
    const ImageView view = random_view(options_, width, height, random);
    mirrored = view.mirrored;
    return view.box;
  };
  const DecodedPart part = decode_image(file, request);
  resample(part, request.size, mirrored, colours_, to);
}

void ImageSamples::skip(std::int64_t index, const std::string& reason) const {
  std::size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!skipped_.insert(index).second) return;
    count = skipped_.size();
  }
  log::warning("skipped '", images_->name(index), "': ", reason, " (", count, " skipped so far)");
}

std::int64_t ImageSamples::skipped() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(skipped_.size());
}

OpenedData open_image_samples(std::shared_ptr<const EncodedImages> train,
                              std::shared_ptr<const EncodedImages> validation, const DataOptions& options,
                              const ImageOptions& own, const DatasetInfo& info) {
  check_validation_fraction(options.validation_fraction);
  const bool trains = options.known.class_names.empty();
  const std::vector<std::int64_t> starts = train->shard_starts();
  const auto samples = std::make_shared<ImageSamples>(train, own, options.seed, trains, info);
  OpenedData opened{.kind = info.kind, .train = samples, .validation = nullptr};
  std::vector<std::int64_t> kept;
  if (validation) {
    opened.validation = std::make_shared<ImageSamples>(std::move(validation), own, options.seed, false, info);
  } else if (options.validation_fraction > 0.0) {
    SplitIndices split = split_indices(samples->size(), options.validation_fraction, options.split_seed);
    opened.validation = std::make_shared<Subset>(
        std::make_shared<ImageSamples>(std::move(train), own, options.seed, false, info),
        std::move(split.validation));
    kept = std::move(split.train);
    opened.train = std::make_shared<Subset>(samples, kept);
  }
  if (starts.size() > 2) {
    opened.train = std::make_shared<ShardedSubset>(
        samples, opened.train == samples ? all_of(samples->size()) : std::move(kept), starts,
        own.shuffle_window);
  }
  return opened;
}

}  // namespace rondo
