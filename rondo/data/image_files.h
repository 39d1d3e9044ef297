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

// Returns the text with A to Z in lower case.
std::string lower_case(std::string text);

// Returns whether files with this extension (lower case, without its dot) are read as images.
bool is_image_ending(std::string_view ending);

// Returns whether the extension is that of an unsupported image format.
bool is_unread_image_ending(std::string_view ending);

// Encoded images with their classes. Concurrent reads are safe.
class EncodedImages {
 public:
  virtual ~EncodedImages() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int64_t label(std::int64_t index) const = 0;
  virtual std::string name(std::int64_t index) const = 0;  // name for messages
  // Returns the bytes of an image, in `storage` or in memory that lives as long as the object. Throws
  // DataError.
  virtual std::span<const std::uint8_t> read(std::int64_t index, std::string& storage) const = 0;
  // Returns the first sample of each shard, then the number of samples; {0, size()} without shards.
  virtual std::vector<std::int64_t> shard_starts() const { return {0, size()}; }
  // Returns the first sample of each file, then the number of samples.
  virtual std::vector<std::int64_t> file_starts() const { return shard_starts(); }
};

// A data set that decodes, crops, resamples and normalises images. The crop is a function of (seed, epoch,
// sample): it does not depend on ranks, threads, batch size or resuming. Input float32 [samples, 3, size,
// size], target the class.
class ImageSamples final : public Dataset, public DataFiles {
 public:
  // With `training`, samples are random crops chosen by `seed`; otherwise the centre. Throws UsageError for
  // invalid options.
  ImageSamples(std::shared_ptr<const EncodedImages> images, const ImageOptions& options, std::uint64_t seed,
               bool training, DatasetInfo info);
  std::int64_t size() const override { return images_->size(); }
  Batch get(std::span<const std::int64_t> indices) const override { return get_at_epoch(indices, 0); }
  // Throws DataError for a corrupt image, or skips it and logs a warning once, according to
  // ImageOptions::corrupt.
  Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const override;
  const DatasetInfo& info() const override { return info_; }
  std::vector<std::int64_t> file_starts() const override {
    return without_empty_files(images_->file_starts());
  }
  std::int64_t skipped() const;  // number of distinct images skipped so far

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

// Creates training and validation samples of `train`; a random part is used for validation if `validation` is
// null. Does not augment data that a trained model only evaluates.
OpenedData open_image_samples(std::shared_ptr<const EncodedImages> train,
                              std::shared_ptr<const EncodedImages> validation, const DataOptions& options,
                              const ImageOptions& own, const DatasetInfo& info);

}  // namespace rondo
