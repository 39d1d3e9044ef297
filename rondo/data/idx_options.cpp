#include "rondo/data/idx_options.h"

namespace rondo {

std::vector<Declaration> IdxKind::declarations() { return {{"idx", "labelled images in MNIST's format"}}; }

}  // namespace rondo
