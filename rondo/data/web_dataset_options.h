#pragma once

#include <string>
#include <vector>

#include "rondo/data/image/image_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// The kind webdataset, tar files of images as WebDataset has them: a sample is the members with one name up
// to the first dot, an image (jpg, jpeg or png, in small or capital letters) and its class as a number (cls).
// Members of no sample are counted and named in a warning. PATH is one file, or a folder of *.tar, of which
// val*.tar are for validation where there are others besides. Members are found once, when the files are
// opened; a training reads the shards in random order, and shuffles in a window (order_of_shards()). See
// data_kinds.h.
struct WebDatasetKind {
  using Options = ImageOptions;
  static std::vector<Declaration> declarations();
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
