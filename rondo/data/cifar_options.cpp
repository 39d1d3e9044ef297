#include "rondo/data/cifar_options.h"

namespace rondo {

std::vector<Declaration> CifarKind::declarations() {
  return {{"cifar10", "small colour images, 10 classes (binary version)"},
          {"cifar100", "small colour images, 100 classes (binary version)"}};
}

}  // namespace rondo
