#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/data/data_files.h"
#include "rondo/data/mapped_input.h"
#include "rondo/data/open.h"

namespace rondo {

// Where labelled images of one size lie in mapped files; pixels are bytes, channel by channel, row by row.
struct ImageRecords {
  std::vector<std::shared_ptr<const MappedInput>> files;  // keeps what `pixels` points into
  std::vector<const std::uint8_t*> pixels;                // of each image
  std::vector<std::uint8_t> labels;                       // of each image
  std::vector<std::int64_t> starts = {0};                 // the first image of each file

  // Adds those of `other` at the end.
  void append(ImageRecords other);
};

// Labelled images. Pixel values 0 to 255 become -1 to 1.
class ImageDataset final : public Dataset, public DataFiles {
 public:
  ImageDataset(ImageRecords records, DatasetInfo info);
  std::int64_t size() const override { return static_cast<std::int64_t>(records_.labels.size()); }
  Batch get(std::span<const std::int64_t> indices) const override;
  const DatasetInfo& info() const override { return info_; }
  std::vector<std::int64_t> file_starts() const override;

 private:
  ImageRecords records_;
  DatasetInfo info_;
  std::size_t values_;  // of one image
};

// Training and validation data: `test` when the files have it (not null), otherwise part of `train`.
OpenedData open_images(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> test,
                       const DataOptions& options);

}  // namespace rondo
