#include "rondo/models/mlp_options.h"

namespace rondo {

std::vector<Declaration> MlpFamily::declarations() {
  return {{"mlp", "fully connected layers, for images and tables"}};
}

}  // namespace rondo
