#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rondo/data/data_files.h"
#include "rondo/data/data_kinds.h"
#include "rondo/data/open.h"

namespace rondo {

// Locations of labelled images of one size in mapped files. Pixels are bytes, channel by channel, row by row.
struct ImageRecords {
  std::vector<std::shared_ptr<const MappedInput>> files;  // owners of the memory that `pixels` refers to
  std::vector<const std::uint8_t*> pixels;                // one for each image
  std::vector<std::uint8_t> labels;                       // one for each image
  std::vector<std::int64_t> starts = {0};                 // first image of each file

  // Appends the records of `other`.
  void append(ImageRecords other);
};

// A data set of labelled images. Pixel values 0 to 255 become -1 to 1.
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
  std::size_t values_;  // number of values of one image
};

// Returns training and validation data: `test` is the validation data if not null, else a part of `train`.
OpenedData open_images(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> test,
                       const DataOptions& options);

// Content of an IDX file of bytes (MNIST's format: two zero bytes, the value type, the number of dimensions,
// each dimension as a big-endian 32-bit number, the values).
struct IdxView {
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> values;
};

// Parses the header of `file` and checks the length. Throws DataError naming `path`, the byte offset and the
// expected value; also for a value type other than bytes and for a number of dimensions other than
// `dimensions`.
IdxView parse_idx(std::span<const std::uint8_t> file, const std::string& path, int dimensions);

// Binary format of a CIFAR data set: records of label bytes and 3 x 32 x 32 pixels.
struct CifarFormat {
  std::string kind;  // "cifar10" or "cifar100"
  std::size_t
      // number of bytes before the pixels; the last one is the label (CIFAR-100 has its coarse label first)
      label_bytes;
  std::int64_t classes;
  std::size_t record_bytes() const { return label_bytes + 3 * 32 * 32; }
};

inline const CifarFormat kCifar10{.kind = "cifar10", .label_bytes = 1, .classes = 10};
inline const CifarFormat kCifar100{.kind = "cifar100", .label_bytes = 2, .classes = 100};

// Reads one file. Throws DataError naming the file, the byte offset and the expectation: whole records with
// labels below the number of classes.
ImageRecords parse_cifar(std::shared_ptr<const MappedInput> file, const CifarFormat& format);

}  // namespace rondo
