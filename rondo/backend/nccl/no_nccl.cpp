#include "rondo/backend/nccl/factory.h"
#include "rondo/base/error.h"

namespace rondo {

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest&) {
  throw UsageError(
      "this build of rondo has no NCCL: it needs a libtorch with CUDA, and the headers of CUDA and NCCL "
      "(beside what a CUDA wheel brings nvidia-cuda-crt and nvidia-cuda-cccl, or a CUDA toolkit)");
}

std::string card_of(c10::Device device) { return device.str(); }

bool have_nccl() { return false; }

}  // namespace rondo
