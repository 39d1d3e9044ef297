#include <cstdlib>

#include "rondo/backend/nccl/factory.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest&) { throw UsageError(kNoNccl); }

// The driver is not asked: ranks that see other devices under one number say so.
std::string card_of(c10::Device device) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? device.str() : str(device.str(), " of CUDA_VISIBLE_DEVICES=", visible);
}

bool have_nccl() { return false; }

}  // namespace rondo
