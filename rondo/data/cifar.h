#pragma once

#include "rondo/data/cifar_options.h"
#include "rondo/data/images.h"

namespace rondo {

// The two CIFAR data sets in their binary version: records of label bytes and 3 x 32 x 32 pixels.
struct CifarFormat {
  std::string kind;  // "cifar10" or "cifar100"
  std::size_t
      label_bytes;  // before the pixels; the last one is the label (CIFAR-100 has its coarse label first)
  std::int64_t classes;
  std::size_t record_bytes() const { return label_bytes + 3 * 32 * 32; }
};

inline const CifarFormat kCifar10{.kind = "cifar10", .label_bytes = 1, .classes = 10};
inline const CifarFormat kCifar100{.kind = "cifar100", .label_bytes = 2, .classes = 100};

// Reads one file. Throws DataError naming the file, the byte offset and what was expected: whole records with
// labels below the number of classes.
ImageRecords parse_cifar(std::shared_ptr<const MappedInput> file, const CifarFormat& format);

}  // namespace rondo
