// Compiled with USE_C10D_NCCL where libtorch has CUDA and NCCL's and CUDA's headers are found; no other file
// sees them.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <ATen/cuda/CUDAContextLight.h>
#include <torch/cuda.h>

#include "rondo/backend/nccl/factory.h"
#include "rondo/base/error.h"
#include "rondo/base/machine.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// A process group that a DeviceWatch may abort while operations are under way. By default libtorch's watchdog
// would then end the process, as TORCH_NCCL_ASYNC_ERROR_HANDLING says.
class AbortableProcessGroup final : public c10d::ProcessGroupNCCL {
 public:
  AbortableProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                        const c10::intrusive_ptr<Options>& options)
      : ProcessGroupNCCL(store, rank, size, options) {
    asyncErrorHandling_ = c10d::CleanUpOnly;  // before the first operation, at which the watchdog looks
  }
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request) {
  using c10d::ProcessGroupNCCL;
  if (!torch::cuda::is_available()) throw UsageError("backend nccl: libtorch sees no GPU on this host");
  auto options = ProcessGroupNCCL::Options::create();
  // The watch names ranks, so it is the first to give up.
  options->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(request.timeout) + kDeviceGrace;
  options->global_ranks_in_group.assign(request.world_ranks.begin(), request.world_ranks.end());
  options->group_name = request.group_name;
  return c10::make_intrusive<AbortableProcessGroup>(request.store, request.rank, request.size, options);
}

std::string card_of(c10::Device device) {
  const cudaDeviceProp& card = *at::cuda::getDeviceProperties(device.index());
  return str(card.name, " at PCI ", card.pciDomainID, ":", card.pciBusID, ":", card.pciDeviceID, " of host ",
             host_name());
}

bool have_nccl() { return true; }

}  // namespace rondo
