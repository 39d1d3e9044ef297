#include "rondo/data/image_folder_options.h"

namespace rondo {

std::vector<Declaration> ImageFolderKind::declarations() {
  return {{"image_folder", "JPEG and PNG files in a folder for each class",
           without_window(declared_image_options())}};
}

}  // namespace rondo
