#include "rondo/backend/nccl/factory.h"
#include "rondo/backend/nccl/nccl_options.h"

namespace rondo {

RegisteredBackend NcclFolder::engine(const Options& /*none*/) {
  return {make_nccl_backend, kNcclTraits, true};
}

}  // namespace rondo
