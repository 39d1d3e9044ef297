#include "rondo/models/convnet_options.h"

namespace rondo {

std::vector<Declaration> ConvnetFamily::declarations() {
  return {{"convnet", "convolutions for images", dropout_table()}};
}

}  // namespace rondo
