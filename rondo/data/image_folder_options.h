#pragma once

#include <string>
#include <vector>

#include "rondo/data/image/image_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// The kind image_folder: images in a folder for each class, as torchvision's ImageFolder reads them:
// PATH/cat/*.jpg, PATH/dog/*.png, at any depth below a class; classes are the names of the folders, sorted.
// With PATH/train and PATH/val (or validation) these are the two parts. See data_kinds.h.
struct ImageFolderKind {
  using Options = ImageOptions;
  static std::vector<Declaration> declarations();
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
