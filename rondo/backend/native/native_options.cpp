#include "rondo/backend/native/native_options.h"

namespace rondo {

Declaration NativeFolder::declaration() {
  return {.name = "native", .summary = "rondo's own, through shared memory, on one host"};
}

}  // namespace rondo
