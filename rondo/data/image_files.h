#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/data_files.h"
#include "rondo/data/dataset.h"
#include "rondo/data/image/resample.h"
#include "rondo/data/open.h"

namespace rondo {

// Returns the text with small letters for A to Z.
std::string lower_case(std::string text);

// Returns whether files with this ending, in small letters and without its dot, are read as images.
bool is_image_ending(std::string_view ending);

// Returns whether the ending is that of an image in a format that is not read.
bool is_unread_image_ending(std::string_view ending);

// Images in their files' own form, with a class each. Any thread may read.
class EncodedImages {
 public:
  virtual ~EncodedImages() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int64_t label(std::int64_t index) const = 0;
  virtual std::string name(std::int64_t index) const = 0;  // for messages
  // The bytes of an image; in `storage`, or somewhere that lives as long as the object. Throws DataError.
  virtual std::span<const std::uint8_t> read(std::int64_t index, std::string& storage) const = 0;
  // The first sample of each shard, and the number of samples; {0, size()} without shards.
  virtual std::vector<std::int64_t> shard_starts() const { return {0, size()}; }
  // The first sample of each file, and the number of samples.
  virtual std::vector<std::int64_t> file_starts() const { return shard_starts(); }
};

// Images as samples: decoded, a part cut out and resampled, normalised. Which part is a function of (seed,
// epoch, sample), so ranks, threads, batch sizes and resumed runs make no difference. Input float32 [samples,
// 3, size, size], target the class.
class ImageSamples final : public Dataset, public DataFiles {
 public:
  // With `training` samples are random parts, which `seed` chooses, otherwise the middle. Throws UsageError
  // for options that cannot be.
  ImageSamples(std::shared_ptr<const EncodedImages> images, const ImageOptions& options, std::uint64_t seed,
               bool training, DatasetInfo info);
  std::int64_t size() const override { return images_->size(); }
  Batch get(std::span<const std::int64_t> indices) const override { return get_at_epoch(indices, 0); }
  // Throws DataError for a corrupt image, or leaves it out and warns, once for each.
  Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const override;
  const DatasetInfo& info() const override { return info_; }
  std::vector<std::int64_t> file_starts() const override {
    return without_empty_files(images_->file_starts());
  }
  std::int64_t skipped() const;  // different images that were left out until now

 private:
  void write_sample(std::int64_t index, std::int64_t epoch, float* to) const;
  void skip(std::int64_t index, const std::string& reason) const;

  std::shared_ptr<const EncodedImages> images_;
  ImageOptions options_;
  std::uint64_t seed_;
  bool training_;
  DatasetInfo info_;
  ColourScale colours_;
  mutable std::mutex mutex_;  // protects skipped_
  mutable std::set<std::int64_t> skipped_;
};

// Training and validation samples of `train`, of which a random part is kept for validation unless
// `validation` is there. Training data that a model is only judged by is not augmented.
OpenedData open_image_samples(std::shared_ptr<const EncodedImages> train,
                              std::shared_ptr<const EncodedImages> validation, const DataOptions& options,
                              const ImageOptions& own, const DatasetInfo& info);

}  // namespace rondo
