#include "rondo/data/web_dataset_options.h"

namespace rondo {

std::vector<Declaration> WebDatasetKind::declarations() {
  return {{"webdataset", "tar files of images with their classes", declared_image_options()}};
}

}  // namespace rondo
