#include "rondo/backend/nccl/nccl_options.h"

namespace rondo {

Declaration NcclFolder::declaration() {
  return {.name = "nccl", .summary = "NCCL, between GPUs", .installed_apart = true};
}

}  // namespace rondo
